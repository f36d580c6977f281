// SPDX-License-Identifier: Apache-2.0
// Fitting, predicting, and saying by how much it misses.
#include "public_case.hpp"

#include "plan_sweep.hpp"
#include "report_parts.hpp"

namespace foregather::job {
namespace {

PredictedForward replay_passes(double gather, double compute,
                               const schedule::Contention& contention) {
    std::vector<base::UnitId> units(public_layers);
    for (int i = 0; i < public_layers; ++i) {
        units[static_cast<std::size_t>(i)] = i;
    }
    schedule::Plan plan = schedule::forward_plan(units, 1, 1);
    plan.step_ends = {1};
    schedule::PassTimes times;
    times.compute.assign(units.size(), compute / public_layers);
    times.gather.assign(units.size(), gather / public_layers);
    const schedule::Replayed replayed = schedule::replay(plan, times, contention);
    const schedule::ReplayedDirection& forward = replayed.of(schedule::Direction::forward);
    return {forward.gather, forward.exposed, forward.compute};
}

double off(double predicted, double published) { return 100 * (predicted / published - 1); }

std::string figure(const char* name, double fitted, double published_fitted, double predicted,
                   double published) {
    return text_line("  %-22s %9.2f %9.2f %+7.1f %%   %9.2f %9.2f %+7.1f %%", name,
                     published_fitted, fitted, off(fitted, published_fitted), published, predicted,
                     off(predicted, published));
}

std::string check(const char* what, double published, double predicted) {
    return text_line("  %-58s published %+5.1f %%, predicted %+5.1f %%: off by %.1f points", what,
                     100 * published, 100 * predicted, 100 * (predicted - published));
}

const PlanRow* deepest(const Sweep& sweep, int ranks) {
    const PlanRow* found = nullptr;
    for (const PlanRow& row : sweep.rows) {
        if (row.setting.ranks == ranks && row.setting.shard == ranks &&
            (found == nullptr || row.asked_depth > found->asked_depth)) {
            found = &row;
        }
    }
    return found;
}

} // namespace

PredictedForward replay_case(double gather, double compute, const CaseFit& fit) {
    const double busy = 1 - fit.alone;
    const PredictedForward with_compute = replay_passes(gather, compute / busy, fit.contention);
    return {busy * with_compute.gather + fit.alone * gather,
            busy * with_compute.exposed + fit.alone * gather, busy * with_compute.compute};
}

CaseFit fit_case(const PublishedForward& figures) {
    const double overlapped = figures.gather_after - figures.exposed_after;
    const double longer = figures.compute_after - figures.compute_before;
    CaseFit fit;
    fit.contention.compute = longer / (overlapped - longer);
    fit.contention.collective = overlapped / (figures.gather_before - figures.exposed_after) - 1;
    double low = 0, high = 0.99;
    while (high - low > 1e-9) {
        fit.alone = (low + high) / 2;
        const PredictedForward replayed =
            replay_case(figures.gather_before, figures.compute_before, fit);
        (replayed.exposed < figures.exposed_after ? low : high) = fit.alone;
    }
    return fit;
}

std::string public_case_text() {
    const PublishedForward &fitted = without_offload, &tested = with_offload;
    const CaseFit fit = fit_case(fitted);
    const PredictedForward a = replay_case(fitted.gather_before, fitted.compute_before, fit);
    const PredictedForward b = replay_case(tested.gather_before, tested.compute_before, fit);
    const auto step = [](const PublishedForward& p, const PredictedForward& r) {
        return p.step_before - (p.before() - r.forward());
    };
    const double gained = tested.before() - tested.after();
    const double foretold = tested.before() - b.forward();
    return text_line(
               "public case: forward prefetch, a model of 32 billion parameters on 2 nodes of "
               "8 H200, FSDP2; s per rank and step") +
           text_line("  fitted to the case without offload by the replay of %d equal layers:",
                     public_layers) +
           text_line("    machine.compute_slowdown = %.2f, machine.collective_slowdown = %.2f, and "
                     "%.0f %% of the gathers with",
                     fit.contention.compute, fit.contention.collective, 100 * fit.alone) +
           text_line(
               "    nothing to compute beside them, for a cause that the figures do not tell. "
               "Three free inputs for three") +
           text_line("    figures: they fit whatever the truth is. What is predicted with them for "
                     "the case with offload is a test.") +
           text_line("  %-22s %29s   %29s", "after the prefetch", "without offload: fitted",
                     "with offload: predicted") +
           text_line("  %-22s %9s %9s %9s   %9s %9s %9s", "", "published", "replay", "off",
                     "published", "replay", "off") +
           figure("forward gather kernels", a.gather, fitted.gather_after, b.gather,
                  tested.gather_after) +
           figure("  of which exposed", a.exposed, fitted.exposed_after, b.exposed,
                  tested.exposed_after) +
           figure("forward compute", a.compute, fitted.compute_after, b.compute,
                  tested.compute_after) +
           figure("forward", a.forward(), fitted.after(), b.forward(), tested.after()) +
           figure("step", step(fitted, a), fitted.step_after, step(tested, b), tested.step_after) +
           text_line("  step: as before, but for what forward gained; backward is taken to be what "
                     "it was.") +
           text_line("  With offload forward gained %.2f s, of which %.2f s are predicted: there "
                     "the prefetch cost less than this fit says.",
                     gained, foretold);
}

bool is_published_model(const model::ModelConfig& config) {
    return config.layers == 32 && config.width == 4096 && config.ffn == 14336 &&
           config.heads == 32 && config.kv_heads == 8 && config.vocabulary == 128256;
}

std::string published_checks_text(const Sweep& sweep, const std::string& why_not) {
    if (!why_not.empty()) {
        return text_line(
            "published checks: none, they are of training Llama 3.1 8B on H100, and %s",
            why_not.c_str());
    }
    const PlanRow* few = deepest(sweep, 8);
    const PlanRow* many = deepest(sweep, 128);
    if (few == nullptr || many == nullptr) {
        return text_line("published checks: need plan.ranks with 8 and 128, plan.shards = 0");
    }
    return text_line("published checks, beside the rows of 8 and 128 ranks above; batches, "
                     "activation memory and versions of the published") +
           text_line(
               "  runs are not those of this plan, so neither is a test of more than size and "
               "sign") +
           check("FSDP2, Llama 3.1 8B from 8 to 128 H100: tokens/s per GPU", published_scaling,
                 many->per_rank / few->per_rank - 1) +
           check("gathers by copy engines, not SMs: tokens/s, at 8 ranks", published_copy_engines,
                 few->replayed.step / few->untaxed_step - 1) +
           check("the same at 128 ranks", published_copy_engines,
                 many->replayed.step / many->untaxed_step - 1) +
           text_line("  (copy engines: machine.compute_slowdown and machine.collective_slowdown "
                     "set to 0)");
}

} // namespace foregather::job
