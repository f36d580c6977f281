// SPDX-License-Identifier: Apache-2.0
// Types recognised and made, strings and attributes read and written, blocks cut and moved.
// Numbers are moved as stored, or converted by HDF5 if asked; weights go through convert.hpp.
#include <foregather/io/h5_data.hpp>

#include <algorithm>

#include <foregather/base/moves.hpp>

namespace foregather::io {

namespace {

// The bit fields of a floating-point type.
struct FloatFields {
    std::size_t sign, exponent, exponent_size, mantissa, mantissa_size, bias;

    friend bool operator==(const FloatFields&, const FloatFields&) = default;
};
constexpr FloatFields bfloat16_fields{15, 7, 8, 0, 7, 127};
constexpr FloatFields float16_fields{15, 10, 5, 0, 10, 15};

FloatFields fields_of(hid_t type) {
    FloatFields f{};
    check(
        H5Tget_fields(type, &f.sign, &f.exponent, &f.exponent_size, &f.mantissa, &f.mantissa_size),
        "read the bit fields of a type");
    f.bias = H5Tget_ebias(type);
    return f;
}

Type make_16_bit(const FloatFields& f) {
    Type type(check(H5Tcopy(H5T_IEEE_F32LE), "copy a type"));
    // Fields before size: HDF5 refuses a size that the old fields do not fit into.
    check(H5Tset_fields(type.handle(), f.sign, f.exponent, f.exponent_size, f.mantissa,
                        f.mantissa_size),
          "set the bit fields of a type");
    check(H5Tset_size(type.handle(), 2), "set the size of a type");
    check(H5Tset_ebias(type.handle(), f.bias), "set the exponent bias of a type");
    return type;
}

std::string float_in_words(hid_t type, const std::string& plain) {
    const FloatFields fields = fields_of(type);
    if (H5Tget_size(type) != 2 || fields == float16_fields) {
        return plain;
    }
    return fields == bfloat16_fields ? "bfloat16"
                                     : plain + " with " + std::to_string(fields.exponent_size) +
                                           " exponent and " + std::to_string(fields.mantissa_size) +
                                           " mantissa bits, bias " + std::to_string(fields.bias);
}

std::vector<hsize_t> extents(const base::Shape& shape) { return {shape.begin(), shape.end()}; }

struct Selection {
    Space file, memory;
};

Selection select(const Dataset& dataset, const Block& block, const std::string& name) {
    const std::vector<hsize_t> start = extents(block.start), count = extents(block.count);
    Selection selection{
        Space(check(H5Dget_space(dataset.handle()), "read the shape of " + name)),
        Space(check(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr),
                    "describe a block of " + name))};
    if (check(H5Sget_simple_extent_ndims(selection.file.handle()), "read the shape of " + name) !=
        static_cast<int>(count.size())) {
        base::fail("a block of " + std::to_string(count.size()) + " dimensions was asked of " +
                   name + ", which has another number");
    }
    check(H5Sselect_hyperslab(selection.file.handle(), H5S_SELECT_SET, start.data(), nullptr,
                              count.data(), nullptr),
          "select a block of " + name);
    return selection;
}

void cut(Block block, std::size_t dimension, std::int64_t element_bytes, std::int64_t limit_bytes,
         base::Elements& position, const std::function<void(const Block&, base::Elements)>& use) {
    const base::Elements elements = base::elements_of(block.count);
    if (elements == 0) {
        return;
    }
    if (elements * element_bytes <= limit_bytes || dimension == block.count.size()) {
        use(block, position);
        position += elements;
        return;
    }
    const std::int64_t begin = block.start[dimension], end = begin + block.count[dimension];
    const std::int64_t slice_bytes = elements / block.count[dimension] * element_bytes;
    const std::int64_t step = std::max<std::int64_t>(1, limit_bytes / slice_bytes);
    for (std::int64_t first = begin; first < end; first += step) {
        block.start[dimension] = first;
        block.count[dimension] = std::min(step, end - first);
        cut(block, dimension + 1, element_bytes, limit_bytes, position, use);
    }
}

// Goes on with dimension `d` of `block`, whose earlier ones are single rows; `flat` counts from
// there.
void cover(Block& block, const base::Shape& shape, std::size_t d, base::Range flat,
           base::Elements& position, const std::function<void(const Block&, base::Elements)>& use) {
    base::Elements row = 1;
    for (std::size_t i = d + 1; i < shape.size(); ++i) {
        row *= shape[i];
    }
    for (base::Elements at = flat.begin; at < flat.end;) {
        const base::Elements skip = at % row, left = flat.end - at;
        block.start[d] = at / row;
        if (skip == 0 && left >= row) {
            for (std::size_t i = d + 1; i < shape.size(); ++i) {
                block.start[i] = 0;
                block.count[i] = shape[i];
            }
            block.count[d] = left / row;
            use(block, position);
            position += left / row * row;
            at += left / row * row;
        } else {
            const base::Elements n = std::min(row - skip, left);
            block.count[d] = 1;
            cover(block, shape, d + 1, {skip, skip + n}, position, use);
            at += n;
        }
    }
}

// Reads one string of `type` through `read(memory type, destination)`.
std::string text_of(const Type& type, const std::function<void(hid_t, void*)>& read) {
    if (H5Tis_variable_str(type.handle()) > 0) {
        char* stored = nullptr;
        read(type.handle(), &stored);
        const std::string text = stored != nullptr ? stored : "";
        H5free_memory(stored);
        return text;
    }
    std::string text(H5Tget_size(type.handle()), '\0');
    read(type.handle(), text.data());
    const H5T_str_t padding = H5Tget_strpad(type.handle());
    if (padding == H5T_STR_NULLTERM) {
        text.resize(std::min(text.find('\0'), text.size()));
    } else {
        const char pad = padding == H5T_STR_SPACEPAD ? ' ' : '\0';
        text.resize(text.find_last_not_of(pad) + 1);
    }
    return text;
}

void require_one(hid_t type, H5T_class_t wanted, const Space& space, const std::string& what,
                 const std::string& name) {
    if (H5Tget_class(type) != wanted || H5Sget_simple_extent_npoints(space.handle()) != 1) {
        base::refuse(name + " must hold one " + what + ", but holds " +
                     std::to_string(H5Sget_simple_extent_npoints(space.handle())) + " of type " +
                     type_in_words(type));
    }
}

struct OpenAttribute {
    Attribute attribute;
    Type type;
    std::string name;
};

std::optional<OpenAttribute> open_attribute(hid_t object, const std::string& attribute,
                                            const std::string& name, H5T_class_t wanted,
                                            const std::string& what) {
    const std::string full = "attribute " + attribute + " of " + name;
    const base::Status refused = base::Status::refused;
    if (check(H5Aexists(object, attribute.c_str()), "look for " + full, refused) == 0) {
        return std::nullopt;
    }
    OpenAttribute open{
        Attribute(check(H5Aopen(object, attribute.c_str(), H5P_DEFAULT), "open " + full, refused)),
        Type(), full};
    open.type = Type(check(H5Aget_type(open.attribute.handle()), "read type of " + full, refused));
    const Space space(
        check(H5Aget_space(open.attribute.handle()), "read shape of " + full, refused));
    require_one(open.type.handle(), wanted, space, what, full);
    return open;
}

void write_scalar_attribute(hid_t object, const std::string& attribute, hid_t type,
                            const void* value) {
    const Space space(check(H5Screate(H5S_SCALAR), "describe attribute " + attribute));
    const Attribute created(
        check(H5Acreate2(object, attribute.c_str(), type, space.handle(), H5P_DEFAULT, H5P_DEFAULT),
              "create attribute " + attribute));
    check(H5Awrite(created.handle(), type, value), "write attribute " + attribute);
}

void overwrite_scalar_attribute(hid_t object, const std::string& attribute, hid_t type,
                                const void* value) {
    const Attribute opened(
        check(H5Aopen(object, attribute.c_str(), H5P_DEFAULT), "open attribute " + attribute));
    check(H5Awrite(opened.handle(), type, value), "write attribute " + attribute);
}

} // namespace

Type file_type(base::DType type) {
    switch (type) {
    case base::DType::bf16:
        return make_16_bit(bfloat16_fields);
    case base::DType::f16:
        return make_16_bit(float16_fields);
    case base::DType::f32:
        break;
    }
    return Type(check(H5Tcopy(H5T_IEEE_F32LE), "copy a type"));
}

std::optional<base::DType> dtype_of(hid_t type) {
    if (H5Tget_class(type) != H5T_FLOAT || H5Tget_order(type) != H5T_ORDER_LE) {
        return std::nullopt;
    }
    if (check(H5Tequal(type, H5T_IEEE_F32LE), "compare types") > 0) {
        return base::DType::f32;
    }
    if (H5Tget_size(type) != 2 || H5Tget_norm(type) != H5T_NORM_IMPLIED) {
        return std::nullopt;
    }
    const FloatFields fields = fields_of(type);
    if (fields == bfloat16_fields) {
        return base::DType::bf16;
    }
    return fields == float16_fields ? std::optional(base::DType::f16) : std::nullopt;
}

std::string type_in_words(hid_t type) {
    const H5T_class_t type_class = H5Tget_class(type);
    const std::string bits = std::to_string(8 * H5Tget_size(type));
    const std::string order = H5Tget_order(type) == H5T_ORDER_BE ? " (big-endian)" : "";
    switch (type_class) {
    case H5T_INTEGER:
        return (H5Tget_sign(type) == H5T_SGN_NONE ? "uint" : "int") + bits + order;
    case H5T_FLOAT:
        return float_in_words(type, "float" + bits) + order;
    case H5T_STRING:
        return H5Tis_variable_str(type) > 0
                   ? "variable-length string"
                   : "string of " + std::to_string(H5Tget_size(type)) + " bytes";
    case H5T_ENUM:
        return "enumeration of " + bits + " bits";
    case H5T_COMPOUND:
        return "compound";
    case H5T_VLEN:
        return "variable-length sequence";
    default:
        return "HDF5 type class " + std::to_string(static_cast<int>(type_class));
    }
}

Type string_type(std::size_t bytes) {
    Type type(check(H5Tcopy(H5T_C_S1), "copy a type"));
    check(H5Tset_size(type.handle(), std::max<std::size_t>(1, bytes)), "size a string type");
    check(H5Tset_strpad(type.handle(), H5T_STR_NULLPAD), "pad a string type with nulls");
    check(H5Tset_cset(type.handle(), H5T_CSET_UTF8), "mark a string type as UTF-8");
    return type;
}

base::Shape shape_of(const Dataset& dataset, const std::string& name) {
    const Space space(check(H5Dget_space(dataset.handle()), "read the shape of " + name));
    const int rank = check(H5Sget_simple_extent_ndims(space.handle()), "read the shape of " + name);
    std::vector<hsize_t> stored(static_cast<std::size_t>(rank));
    check(H5Sget_simple_extent_dims(space.handle(), stored.data(), nullptr),
          "read the shape of " + name);
    return {stored.begin(), stored.end()};
}

void for_each_piece(const Block& block, std::int64_t element_bytes, std::int64_t limit_bytes,
                    const std::function<void(const Block&, base::Elements)>& use) {
    base::Elements position = 0;
    cut(block, 0, element_bytes, limit_bytes, position, use);
}

void for_each_block(const base::Shape& shape, base::Range flat,
                    const std::function<void(const Block&, base::Elements)>& use) {
    Block block{base::Shape(shape.size()), shape};
    base::Elements position = 0;
    cover(block, shape, 0, flat, position, use);
}

void read_block(const Dataset& dataset, hid_t memory_type, const Block& block, std::byte* out,
                const std::string& name) {
    const Selection selection = select(dataset, block, name);
    check(H5Dread(dataset.handle(), memory_type, selection.memory.handle(), selection.file.handle(),
                  H5P_DEFAULT, out),
          "read " + name);
    base::moved();
}

void write_block(const Dataset& dataset, hid_t memory_type, const Block& block,
                 const std::byte* values, const std::string& name) {
    const Selection selection = select(dataset, block, name);
    check(H5Dwrite(dataset.handle(), memory_type, selection.memory.handle(),
                   selection.file.handle(), H5P_DEFAULT, values),
          "write " + name);
    base::moved();
}

std::string read_text(const Dataset& dataset, const std::string& name) {
    const Type type(check(H5Dget_type(dataset.handle()), "read the type of " + name));
    const Space space(check(H5Dget_space(dataset.handle()), "read the shape of " + name));
    require_one(type.handle(), H5T_STRING, space, "string", name);
    return text_of(type, [&](hid_t memory_type, void* out) {
        check(H5Dread(dataset.handle(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out),
              "read " + name, base::Status::refused);
    });
}

std::optional<std::string> text_attribute(hid_t object, const std::string& attribute,
                                          const std::string& name) {
    const auto open = open_attribute(object, attribute, name, H5T_STRING, "string");
    if (!open) {
        return std::nullopt;
    }
    return text_of(open->type, [&](hid_t memory_type, void* out) {
        check(H5Aread(open->attribute.handle(), memory_type, out), "read " + open->name,
              base::Status::refused);
    });
}

std::optional<std::int64_t> integer_attribute(hid_t object, const std::string& attribute,
                                              const std::string& name) {
    const auto open = open_attribute(object, attribute, name, H5T_INTEGER, "integer");
    if (!open) {
        return std::nullopt;
    }
    std::int64_t value = 0;
    check(H5Aread(open->attribute.handle(), H5T_NATIVE_INT64, &value), "read " + open->name,
          base::Status::refused);
    return value;
}

void write_attribute(hid_t object, const std::string& attribute, const std::string& value) {
    if (value.size() >= longest_attribute) {
        base::fail("attribute " + attribute + " would have " + std::to_string(value.size()) +
                   " bytes; a text that long must be a dataset");
    }
    const Type type = string_type(value.size());
    // c_str: the one byte of an empty string is read too.
    write_scalar_attribute(object, attribute, type.handle(), value.c_str());
}

void write_attribute(hid_t object, const std::string& attribute, std::int64_t value) {
    write_scalar_attribute(object, attribute, H5T_NATIVE_INT64, &value);
}

void write_attribute(hid_t object, const std::string& attribute, double value) {
    write_scalar_attribute(object, attribute, H5T_NATIVE_DOUBLE, &value);
}

void overwrite_attribute(hid_t object, const std::string& attribute, std::int64_t value) {
    overwrite_scalar_attribute(object, attribute, H5T_NATIVE_INT64, &value);
}

void overwrite_attribute(hid_t object, const std::string& attribute, double value) {
    overwrite_scalar_attribute(object, attribute, H5T_NATIVE_DOUBLE, &value);
}

} // namespace foregather::io
