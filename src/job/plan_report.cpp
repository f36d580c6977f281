// SPDX-License-Identifier: Apache-2.0
// Words and columns.
#include "plan_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "public_case.hpp"
#include "report_parts.hpp"

namespace foregather::job {
namespace {

using Integers = std::vector<std::int64_t>;
using Reals = std::vector<double>;
using Strings = std::vector<std::string>;

std::string count_text(double n) {
    char text[32];
    std::snprintf(text, sizeof(text),
                  n < 1e3   ? "%.4g"
                  : n < 1e6 ? "%.0f"
                  : n < 1e9 ? "%.1f M"
                            : "%.1f G",
                  n < 1e6   ? n
                  : n < 1e9 ? n * 1e-6
                            : n * 1e-9);
    return text;
}

// So many decimals, or four digits where they would leave fewer.
std::string figure_text(double value, int decimals) {
    char text[32];
    const bool few = value < std::pow(10, 3 - decimals);
    std::snprintf(text, sizeof(text), few ? "%.*g" : "%.*f", few ? 4 : decimals, value);
    return text;
}

std::string row_text(const PlanRow& r) {
    return text_line(
        "%6d %6d %8lld %5s %10s %7s %9s %7.1f %% %9s %11s %9s %8.3f", r.setting.ranks,
        r.setting.shard, static_cast<long long>(r.setting.load.tokens),
        (std::to_string(r.forward) + (std::max(r.forward, r.backward) < r.asked_depth ? "!" : ""))
            .c_str(),
        in_words(r.memory).c_str(), r.fits.c_str(), figure_text(r.replayed.step, 4).c_str(),
        100 * r.exposed_share(),
        r.hidden_from == 0 ? "none" : std::to_string(r.hidden_from).c_str(),
        count_text(r.tokens_per_s).c_str(), figure_text(r.per_rank, 1).c_str(), r.efficiency);
}

// Rows of the same warning, told together.
std::vector<std::string> warnings_of(const Sweep& sweep) {
    std::map<std::string, std::pair<std::size_t, const PlanRow*>> told;
    Strings order;
    for (const PlanRow& row : sweep.rows) {
        for (const std::string& warning : row.warnings) {
            // Of "exposed 12.3 %: fewer tokens ..." what comes behind the colon counts.
            const std::size_t colon = warning.find(": ");
            const std::string kind =
                colon == std::string::npos ? warning : warning.substr(colon + 2);
            auto& [count, first] = told[kind];
            if (count++ == 0) {
                first = &row;
                order.push_back(kind);
            }
        }
    }
    Strings lines;
    for (const std::string& kind : order) {
        const auto& [count, first] = told[kind];
        lines.push_back(kind + ": " + std::to_string(count) + " of " +
                        counted(std::ssize(sweep.rows), "setting", "settings") + ", the first at " +
                        counted(first->setting.ranks, "rank", "ranks") + ", " +
                        counted(first->setting.load.tokens, "token", "tokens") + ", depth " +
                        std::to_string(first->asked_depth));
    }
    return lines;
}

template <class Value, class Of>
std::vector<Value> column(const std::vector<PlanRow>& rows, Of of) {
    std::vector<Value> values;
    for (const PlanRow& row : rows) {
        values.push_back(static_cast<Value>(of(row)));
    }
    return values;
}

// Columns are taken from rows one by one.
class RowColumns {
public:
    RowColumns(const std::vector<PlanRow>& rows, io::Table& table) : rows_(rows), table_(table) {}
    template <class Of>
    void whole(const std::string& name, const char* unit, const char* words, Of of) {
        table_.columns.push_back({name, unit, words, column<std::int64_t>(rows_, of)});
    }
    template <class Of>
    void number(const std::string& name, const char* unit, const char* words, Of of) {
        table_.columns.push_back({name, unit, words, column<double>(rows_, of)});
    }
    template <class Of>
    void text(const std::string& name, const char* words, Of of) {
        table_.columns.push_back({name, "", words, column<std::string>(rows_, of)});
    }

private:
    const std::vector<PlanRow>& rows_;
    io::Table& table_;
};

void add_settings(RowColumns& add) {
    add.whole("ranks", "1", "ranks in all", [](auto& r) { return r.setting.ranks; });
    add.whole("shard", "1", "ranks that hold one copy", [](auto& r) { return r.setting.shard; });
    add.whole("replicas", "1", "copies", [](auto& r) { return r.setting.replicas(); });
    add.whole("tokens", "token", "of a rank and pass",
              [](auto& r) { return r.setting.load.tokens; });
    add.whole("document", "token", "of a document",
              [](auto& r) { return r.setting.load.document; });
    add.whole("passes", "1", "of a step", [](auto& r) { return r.passes; });
    add.whole("depth", "1", "asked for", [](auto& r) { return r.asked_depth; });
    add.whole("forward_depth", "1", "in force", [](auto& r) { return r.forward; });
    add.whole("backward_depth", "1", "in force", [](auto& r) { return r.backward; });
    add.whole("slots", "1", "for gathered units", [](auto& r) { return r.slots; });
    add.whole("slot_bytes", "byte", "of one of them", [](auto& r) { return r.slot_bytes.count; });
    add.whole("memory", "byte", "of a rank", [](auto& r) { return r.memory.count; });
    add.text("fits", "yes, no, unknown", [](auto& r) { return r.fits; });
}

void add_times(RowColumns& add) {
    add.number("step", "s", "optimizer step, or pass of a score",
               [](auto& r) { return r.replayed.step; });
    add.number("untaxed_step", "s", "if no work slowed other work down",
               [](auto& r) { return r.untaxed_step; });
    for (const bool back : {false, true}) {
        const std::string way = back ? "backward_" : "forward_";
        const auto d = static_cast<std::size_t>(back ? 1 : 0);
        const auto of = [&](const char* name, const char* words, auto member) {
            add.number(way + name, "s", words,
                       [&](auto& r) { return r.replayed.directions[d].*member; });
        };
        using One = schedule::ReplayedDirection;
        of("compute", "of a step", &One::compute);
        of("gather", "of a step", &One::gather);
        of("exposed", "compute idle while its gather ran or waited", &One::exposed);
        of("overlapped", "gathers while a unit was computed", &One::overlapped);
    }
    add.number("reduce", "s", "reductions of a step", [](auto& r) { return r.replayed.reduce; });
    add.number("exposed_reduce", "s", "compute idle for reductions",
               [](auto& r) { return r.replayed.exposed_reduce; });
    add.number("optimizer", "s", "updates of a step", [](auto& r) { return r.replayed.optimizer; });
}

void add_findings(RowColumns& add) {
    add.number("exposed_share", "1", "exposed time of all, of the step",
               [](auto& r) { return r.exposed_share(); });
    add.whole("hidden_from", "token",
              "of a rank and pass: from so many on less than 2 % are exposed; 0: none",
              [](auto& r) { return r.hidden_from; });
    add.number("tokens_per_s", "token/s", "of all ranks", [](auto& r) { return r.tokens_per_s; });
    add.number("tokens_per_s_rank", "token/s", "of a rank", [](auto& r) { return r.per_rank; });
    add.number("efficiency", "1", "tokens_per_s_rank to that of the fewest ranks",
               [](auto& r) { return r.efficiency; });
    add.text("basis", "of the times: the least certain of what they come from",
             [](auto& r) { return r.basis; });
    add.text("warning", "what to look at", [](auto& r) {
        std::string all;
        for (const std::string& warning : r.warnings) {
            all += (all.empty() ? "" : "; ") + warning;
        }
        return all;
    });
}

io::Table rows_table(const PlanFacts& f) {
    io::Table table{"/plan/rows", {}, {}, "setting"};
    RowColumns add(f.sweep.rows, table);
    add_settings(add);
    add_times(add);
    add_findings(add);
    const deck::Sections& s = f.deck.sections();
    table.attributes = {{"job", s.plan.job},
                        {"model", s.plan.model},
                        {"machine", s.machine.name},
                        {"basis", f.basis()},
                        {"link_rate_bytes_per_s", f.source.emulated_rate()},
                        {"hidden_share", hidden_share}};
    return table;
}

// Each quantity of the machine that was used, with its basis and source; and what memory it has.
std::string quantities_text(const PlanFacts& f) {
    std::string text;
    const std::vector<std::string> keys = f.source.keys();
    for (const deck::Setting& setting : f.deck.settings()) {
        const bool judges = setting.key == "machine.memory" && !setting.plain.empty();
        if (judges || std::find(keys.begin(), keys.end(), setting.key) != keys.end()) {
            text += "           " + setting.key.substr(setting.key.find('.') + 1) + " = " +
                    setting.value + "\n";
        }
    }
    return text;
}

std::string link_text(const TimeSource& source) {
    return source.emulated_rate() > 0
               ? text_line("link       EMULATED at %.3g Gb/s by comm.link_rate when it was "
                           "measured: times of gathers and reductions are no machine's own",
                           source.emulated_rate() * 8e-9)
               : "";
}

// Of the published checks: training of one model on one kind of machine.
std::string why_not_published(const PlanFacts& f) {
    const deck::Sections& s = f.deck.sections();
    if (!f.model.trains) {
        return "plan.job = " + s.plan.job;
    }
    if (!is_published_model(f.model.config)) {
        return s.plan.model + " is another model";
    }
    if (!s.plan.measured.empty()) {
        return "times are those of " + s.plan.measured;
    }
    return s.machine.name.find("H100") != std::string::npos
               ? ""
               : s.plan.machine + " is another machine";
}

// Uses of a unit, added up by direction.
Reals compute_of(const PlanFacts& f, const PlanUnits& of, bool backward) {
    Reals sums(f.model.chain.units.size());
    const std::size_t uses = f.model.chain.uses.size();
    for (std::size_t i = 0; i < of.times.compute.size(); ++i) {
        if ((i >= uses) == backward) {
            const std::size_t use = backward ? 2 * uses - 1 - i : i;
            sums[static_cast<std::size_t>(f.model.chain.uses[use].unit)] += of.times.compute[i];
        }
    }
    return sums;
}

io::Table units_table(const PlanFacts& f) {
    Integers ranks, shard, tokens, elements, bytes;
    Strings name;
    std::array<Reals, 6> times;
    for (const PlanUnits& of : f.sweep.units) {
        const Reals forward = compute_of(f, of, false), backward = compute_of(f, of, true);
        for (std::size_t u = 0; u < f.model.chain.units.size(); ++u) {
            ranks.push_back(of.setting.ranks);
            shard.push_back(of.setting.shard);
            tokens.push_back(of.setting.load.tokens);
            name.push_back(f.model.chain.units[u].name);
            elements.push_back(f.model.chain.units[u].elements);
            bytes.push_back(
                base::bytes_of(of.arena.units[u].layout.padded(), of.setting.load.weights).count);
            const auto at = [&](const Reals& all) { return u < all.size() ? all[u] : 0; };
            const Reals cells = {forward[u],          backward[u],          at(of.times.gather),
                                 at(of.times.reduce), at(of.times.replica), at(of.times.optimizer)};
            for (std::size_t i = 0; i < times.size(); ++i) {
                times[i].push_back(cells[i]);
            }
        }
    }
    return {"/plan/units",
            {{"ranks", "1", "ranks in all", ranks},
             {"shard", "1", "ranks that hold one copy", shard},
             {"tokens", "token", "of a rank and pass", tokens},
             {"name", "", "unit", name},
             {"elements", "1", "without padding", elements},
             {"bytes", "byte", "gathered at once", bytes},
             {"forward", "s", "its computes alone, of a pass", times[0]},
             {"backward", "s", "its computes alone, of a pass", times[1]},
             {"gather", "s", "alone", times[2]},
             {"reduce", "s", "alone", times[3]},
             {"replica", "s", "sum over replicas, alone", times[4]},
             {"optimizer", "s", "alone", times[5]}},
            {},
            "unit"};
}

} // namespace

std::string PlanFacts::basis() const {
    std::string worst;
    for (const PlanRow& row : sweep.rows) {
        worst = worse(worst, row.basis);
    }
    return worst;
}

std::string plan_text(const PlanFacts& f, const std::vector<std::string>& notes) {
    const deck::Sections& s = f.deck.sections();
    std::int64_t weights = 0;
    for (const shard::UnitSpec& unit : f.model.chain.units) {
        weights += unit.elements;
    }
    std::string text =
        text_line("---- plan: %s of %s, %s weights in %zu units ----", s.plan.job.c_str(),
                  s.plan.model.c_str(), count_text(static_cast<double>(weights)).c_str(),
                  f.model.chain.units.size());
    text += f.source.origin() + "\n" + link_text(f.source) + quantities_text(f);
    text += text_line("%6s %6s %8s %5s %10s %7s %9s %9s %9s %11s %9s %8s", "ranks", "shard",
                      "tokens", "depth", "memory", "fits", "step s", "exposed", "T*", "tokens/s",
                      "per rank", "scaling");
    for (const PlanRow& row : f.sweep.rows) {
        text += row_text(row);
    }
    text += "memory: of a rank, computed from shapes. All other figures: " + f.basis() +
            (f.source.emulated_rate() > 0 ? ", on an EMULATED link" : "") +
            ", the least certain of what they come from.\n"
            "exposed: compute idle for gathers and reductions, of the step. T*: tokens of a rank "
            "and pass from which that\nis below 2 %. scaling: tokens/s per rank, to the fewest "
            "ranks.\n";
    if (s.plan.published) {
        text += public_case_text() + published_checks_text(f.sweep, why_not_published(f));
    }
    for (const std::string& warning : warnings_of(f.sweep)) {
        text += "warning: " + warning + "\n";
    }
    for (const std::string& note : notes) {
        text += "note: " + note + "\n";
    }
    return text;
}

std::vector<io::Table> plan_tables(const PlanFacts& facts) {
    return {rows_table(facts), units_table(facts)};
}

} // namespace foregather::job
