// SPDX-License-Identifier: Apache-2.0
// What a training run says on its way.
#include "train_report.hpp"

namespace foregather::job {
namespace {

double per_second(const StepFacts& f) {
    return f.seconds > 0 ? static_cast<double>(f.tokens) / f.seconds : 0;
}

} // namespace

std::string step_line(const StepFacts& f, std::int64_t steps, base::Bytes peak) {
    const auto share = [&](double seconds) {
        return f.seconds > 0 ? 100 * seconds / f.seconds : 0;
    };
    char text[300];
    std::snprintf(text, sizeof(text),
                  "step %lld/%lld  loss %.4f  norm %.3g  rate %.2e  %.0f tokens/s  exposed gather "
                  "%.0f %%, reduce %.0f %%  %s%s",
                  static_cast<long long>(f.step), static_cast<long long>(steps), f.loss,
                  f.gradient_norm, f.learning_rate, per_second(f), share(f.exposed_gather_s),
                  share(f.exposed_reduce_s), in_words(peak).c_str(),
                  f.applied ? "" : "  NOT APPLIED: loss or norm is not finite");
    return text;
}

nlohmann::json step_object(const StepFacts& f, base::Bytes peak) {
    return {{"event", "step"},
            {"step", f.step},
            {"loss", f.loss},
            {"gradient_norm", f.gradient_norm},
            {"learning_rate", f.learning_rate},
            {"tokens", f.targets},
            {"applied", f.applied},
            {"seconds", f.seconds},
            {"tokens_per_second", per_second(f)},
            {"exposed_gather_s", f.exposed_gather_s},
            {"exposed_reduce_s", f.exposed_reduce_s},
            {"peak_host_bytes", peak.count}};
}

std::string evaluation_line(const Evaluation& e, std::int64_t steps) {
    char text[160];
    std::snprintf(text, sizeof(text), "evaluation after step %lld/%lld  loss %.4f over %lld tokens",
                  static_cast<long long>(e.step), static_cast<long long>(steps), e.loss,
                  static_cast<long long>(e.targets));
    return text;
}

nlohmann::json evaluation_object(const Evaluation& e) {
    return {{"event", "evaluation"}, {"step", e.step}, {"loss", e.loss}, {"tokens", e.targets}};
}

std::string save_line(const Checkpoints::Saved& saved) {
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.2f s", saved.seconds);
    return "saved " + saved.path + " in " + seconds;
}

nlohmann::json save_object(const Checkpoints::Saved& saved, std::int64_t step) {
    return {{"event", "save"},
            {"step", step},
            {"path", saved.path},
            {"seconds", saved.seconds},
            {"bytes", saved.file.count}};
}

} // namespace foregather::job
