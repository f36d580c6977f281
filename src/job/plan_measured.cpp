// SPDX-License-Identifier: Apache-2.0
// Reading a bench, and bringing its times elsewhere.
#include "plan_measured.hpp"

#include <algorithm>
#include <cmath>

#include <foregather/base/error.hpp>
#include <foregather/io/columns.hpp>

#include "report_parts.hpp"

namespace foregather::job {
namespace {

constexpr std::int64_t most_padding = 8192; // bytes of a unit's part, whatever the device

double real(std::int64_t n) { return static_cast<double>(n); }

// One number of tokens that was measured.
struct Point {
    Load load;
    schedule::PassTimes times;
    schedule::Contention contention;
};

struct Bench {
    std::string job, device, recompute, param, reduce, transport;
    int ranks = 1, shard = 1;
    double link_rate = 0; // bytes/s, of this transport; 0: none was emulated
    std::vector<std::string> units;
    std::vector<std::int64_t> bytes; // of units, gathered
    std::vector<Point> points;       // at least one
};

void read_times(const io::File& file, std::int64_t configuration, Point& point) {
    const auto of = io::numbers_of<std::int64_t>(file, "/bench/alone/configuration");
    const auto kind = io::strings_of(file, "/bench/alone/kind");
    const auto seconds = io::numbers_of<double>(file, "/bench/alone/seconds");
    for (std::size_t i = 0; i < of.size(); ++i) {
        if (of[i] != configuration) {
            continue;
        }
        schedule::PassTimes& t = point.times;
        auto& to = kind.at(i) == "compute"   ? t.compute
                   : kind.at(i) == "gather"  ? t.gather
                   : kind.at(i) == "reduce"  ? t.reduce
                   : kind.at(i) == "replica" ? t.replica
                                             : t.optimizer;
        to.push_back(seconds.at(i));
    }
}

// "" where the file does not say it.
std::string device_of(const io::File& file, const std::string& table) {
    const io::Group group(
        io::check(H5Gopen2(file.handle(), table.c_str(), H5P_DEFAULT), "open " + table));
    return io::text_attribute(group.handle(), "device", table).value_or("");
}

bool given(const deck::Deck& deck, const std::string& key) {
    const auto& all = deck.settings();
    return std::find_if(all.begin(), all.end(), [&](const deck::Setting& setting) {
               return setting.key == key;
           })->origin != "default";
}

Bench read_bench(const std::string& path) {
    const io::File file = io::open_input(path, "results file of a bench");
    const std::string table = "/bench/configurations";
    if (!io::holds(file, table)) {
        base::fail(io::holds(file, "/bench")
                       ? "it has no " + table + ", which a bench writes at its end"
                       : "it has no /bench");
    }
    Bench bench;
    bench.device = device_of(file, table);
    bench.job = io::group_text(file, table, "job");
    bench.recompute = io::group_text(file, table, "recompute");
    bench.param = io::group_text(file, table, "param_dtype");
    bench.reduce = io::group_text(file, table, "reduce_dtype");
    bench.ranks = static_cast<int>(io::group_number(file, table, "ranks"));
    bench.shard = static_cast<int>(io::group_number(file, table, "shard_ranks"));
    bench.link_rate = io::group_number(file, table, "link_rate_bytes_per_s");
    bench.units = io::strings_of(file, "/bench/units/name");
    bench.bytes = io::numbers_of<std::int64_t>(file, "/bench/units/bytes");
    const auto numbers = [&](const char* name) {
        return io::numbers_of<double>(file, table + "/" + name);
    };
    const auto transports = io::strings_of(file, table + "/transport");
    const auto moves = numbers("moves"), tokens = numbers("tokens"), attended = numbers("attended");
    const auto between = numbers("between_s"), compute = numbers("contention_compute"),
               collective = numbers("contention_collective");
    const auto first = std::find(moves.begin(), moves.end(), 1.0);
    const auto at = static_cast<std::size_t>(first == moves.end() ? 0 : first - moves.begin());
    bench.transport = transports.at(at);
    if (bench.transport != "mpi" && bench.transport != "nccl") { // no link to emulate
        bench.link_rate = 0;
    }
    for (std::size_t c = at; c < transports.size(); ++c) {
        if (transports[c] != bench.transport) {
            continue;
        }
        Point point;
        point.load.tokens = static_cast<base::Elements>(tokens[c]);
        // Documents of n tokens attend n (n + 1) each.
        point.load.document =
            std::max<base::Elements>(1, std::llround(attended[c] / tokens[c] - 1));
        point.load.weights = bench.param == "bf16" ? base::DType::bf16 : base::DType::f32;
        point.load.recompute = bench.recompute == "layer";
        point.contention = {compute[c], collective[c]};
        point.times.between = between[c];
        read_times(file, static_cast<std::int64_t>(c), point);
        bench.points.push_back(std::move(point));
    }
    return bench;
}

class MeasuredTimes final : public TimeSource {
public:
    MeasuredTimes(const deck::Deck& deck, const PlannedModel& model)
        : deck_(deck), model_(model), s_(deck.sections()), bench_(open(deck)) {
        refuse_another();
    }

    schedule::PassTimes times(const Setting& setting, const shard::ArenaPlan& arena) const override;
    schedule::Contention contention() const override {
        const deck::MachineSection& m = s_.machine;
        schedule::Contention own = bench_.points.front().contention;
        own.compute = m.compute_slowdown.given() ? m.compute_slowdown.value : own.compute;
        own.collective =
            m.collective_slowdown.given() ? m.collective_slowdown.value : own.collective;
        return own;
    }
    // Fitted contention, where there is some; ranks and tokens that were not measured are assumed
    // to be as the measured ones.
    std::string basis(const Setting& setting) const override {
        const schedule::Contention c = contention();
        std::string worst = c.compute == 0 && c.collective == 0 ? "measured" : "fitted";
        for (const std::string& key : keys()) {
            worst = worse(worst, basis_of(deck_, key));
        }
        const bool known =
            std::any_of(bench_.points.begin(), bench_.points.end(),
                        [&](const Point& p) { return p.load.tokens == setting.load.tokens; });
        const bool same = setting.ranks == bench_.ranks && setting.shard == bench_.shard && known;
        return same ? worst : "assumed";
    }
    int ranks_per_node() const override {
        const deck::Sourced& given = s_.machine.ranks_per_node;
        return given.given() ? static_cast<int>(given.value) : 1 << 20;
    }
    std::string kind() const override { return bench_.device; }
    double emulated_rate() const override { return bench_.link_rate; }
    base::DType weights() const override { return bench_.points.front().load.weights; }
    base::Elements document(base::Elements tokens) const override {
        const base::Elements own = bench_.points.front().load.document;
        return s_.plan.document > 0 ? document_of(s_.plan, model_.config, tokens)
                                    : std::min(own, tokens);
    }
    std::vector<std::string> keys() const override {
        std::vector<std::string> given;
        for (const char* key : {"machine.ranks_per_node", "machine.network_bandwidth",
                                "machine.compute_slowdown", "machine.collective_slowdown"}) {
            if (!deck_.plain(key).empty()) {
                given.emplace_back(key);
            }
        }
        return given;
    }
    std::string origin() const override {
        const schedule::Contention c = contention();
        char text[200];
        std::snprintf(text, sizeof(text),
                      ", shard %d, %s, on %s; beside each other compute takes %.2f, collectives "
                      "%.2f times as long",
                      bench_.shard, bench_.transport.c_str(), bench_.device.c_str(), 1 + c.compute,
                      1 + c.collective);
        return "measured   " + s_.plan.measured + ": " + counted(bench_.ranks, "rank", "ranks") +
               text;
    }

private:
    static Bench open(const deck::Deck& deck) {
        const std::string place = deck.where("plan.measured") + ": ";
        try {
            return read_bench(deck.sections().plan.measured);
        } catch (const base::Error& error) {
            base::refuse(place + deck.sections().plan.measured +
                         " is no complete file of a bench: " + error.what());
        }
    }

    [[noreturn]] void refuse(const std::string& why) const {
        base::refuse(deck_.where("plan.measured") + ": " + s_.plan.measured + " was measured " +
                     why);
    }
    void refuse_another();
    const Point& nearest(base::Elements tokens) const;
    double carried(double seconds, double received, double now) const;

    const deck::Deck& deck_;
    const PlannedModel& model_;
    const deck::Sections& s_;
    Bench bench_;
};

void MeasuredTimes::refuse_another() {
    std::vector<std::string> names;
    for (const shard::UnitSpec& unit : model_.chain.units) {
        names.push_back(unit.name);
    }
    bool same = names == bench_.units;
    for (std::size_t u = 0; same && u < names.size(); ++u) {
        const shard::UnitSpec& unit = model_.chain.units[u];
        same = bench_.bytes[u] >= base::bytes_of(unit.elements, weights()).count &&
               bench_.bytes[u] - base::bytes_of(unit.elements, weights()).count <
                   bench_.shard * most_padding;
    }
    if (!same) {
        refuse("with another model, or another fsdp.piece_bytes: its units are not those of " +
               model_.path);
    }
    const bool kind_given = given(deck_, "machine.kind");
    if (bench_.device.empty()) {
        if (!kind_given) {
            refuse(
                "by a version that did not store what computed: say machine.kind = host, or cuda");
        }
        bench_.device = s_.machine.kind;
    } else if (kind_given && bench_.device != s_.machine.kind) {
        refuse("on " + bench_.device + ", and machine.kind = " + s_.machine.kind);
    }
    if (bench_.job != s_.plan.job) {
        refuse("with bench.job = " + bench_.job + ", and plan.job = " + s_.plan.job);
    }
    if (s_.fsdp.param_dtype != "auto" && s_.fsdp.param_dtype != bench_.param) {
        refuse("with fsdp.param_dtype = " + bench_.param);
    }
    if (model_.trains && s_.train.recompute != bench_.recompute) {
        refuse("with train.recompute = " + bench_.recompute);
    }
    if (model_.trains && s_.fsdp.reduce_dtype != bench_.reduce) {
        refuse("with fsdp.reduce_dtype = " + bench_.reduce);
    }
    for (const std::int64_t asked : shards_of(s_.plan)) {
        for (const std::int64_t ranks : s_.plan.ranks) {
            const std::int64_t shard = asked == 0 ? ranks : asked;
            if (bench_.shard == 1 && shard > 1) {
                refuse("where one rank holds all weights: nothing is known of gathers");
            }
            if (model_.trains && bench_.ranks == bench_.shard && ranks > shard) {
                refuse("without replicas: nothing is known of sums over them");
            }
        }
    }
}

const Point& MeasuredTimes::nearest(base::Elements tokens) const {
    const auto distance = [&](const Point& p) {
        return std::abs(std::log(real(p.load.tokens)) - std::log(real(tokens)));
    };
    return *std::min_element(
        bench_.points.begin(), bench_.points.end(),
        [&](const Point& a, const Point& b) { return distance(a) < distance(b); });
}

// A collective that took `seconds` when `received` bytes came, for `now` bytes.
double MeasuredTimes::carried(double seconds, double received, double now) const {
    if (received <= 0 || seconds <= 0) {
        return seconds;
    }
    const deck::Sourced& other = s_.machine.network_bandwidth;
    const double link =
        bench_.link_rate > 0 ? std::min(seconds, received / bench_.link_rate) : seconds;
    const double rate = other.given() ? other.value : received / link;
    return (seconds - link) + now / rate;
}

schedule::PassTimes MeasuredTimes::times(const Setting& setting,
                                         const shard::ArenaPlan& arena) const {
    const Point& from = nearest(setting.load.tokens);
    schedule::PassTimes times = from.times;
    const auto before = work_of_pass(model_.config, model_.chain, from.load, model_.trains);
    const auto after = work_of_pass(model_.config, model_.chain, setting.load, model_.trains);
    const double tokens = real(setting.load.tokens) / real(from.load.tokens);
    for (std::size_t i = 0; i < times.compute.size(); ++i) {
        const double flop = before[i].flop();
        const double attention = flop > 0 ? before[i].attention_flop / flop : 0;
        const double pairs = attention > 0 ? after[i].attention_flop / before[i].attention_flop : 0;
        times.compute[i] *= (1 - attention) * tokens + attention * pairs;
    }
    const auto part = [](int ranks) { return real(ranks - 1) / real(ranks); };
    const double word = real(base::size_of(weights()));
    const double reduced = bench_.reduce == "bf16" ? 2 : 4;
    const int replicas = bench_.ranks / bench_.shard;
    for (std::size_t u = 0; u < arena.units.size(); ++u) {
        const double then = real(bench_.bytes[u]) / word; // elements, padded
        const double now = real(arena.units[u].layout.padded());
        const double was = part(bench_.shard), is = part(setting.shard);
        times.gather[u] =
            setting.shard == 1 ? 0 : carried(times.gather[u], then * word * was, now * word * is);
        if (!model_.trains) {
            continue;
        }
        // One rank, and one pass: the gradient lies where it belongs.
        times.reduce[u] = setting.shard == 1 && s_.train.accumulate == 1
                              ? 0
                              : carried(times.reduce[u], then * reduced * was, now * reduced * is);
        const double mine = now / setting.shard, mine_then = then / bench_.shard;
        if (u < times.replica.size() && times.replica[u] > 0) {
            times.replica[u] = carried(times.replica[u], 8 * mine_then * part(replicas),
                                       8 * mine * part(setting.replicas()));
        }
        if (u < times.optimizer.size()) {
            times.optimizer[u] *= mine / mine_then;
        }
    }
    return times;
}

} // namespace

std::unique_ptr<TimeSource> measured_times(const deck::Deck& deck, const PlannedModel& model) {
    return std::make_unique<MeasuredTimes>(deck, model);
}

} // namespace foregather::job
