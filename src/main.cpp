// SPDX-License-Identifier: Apache-2.0
// From the command line to a job and back to an exit status. Errors end here: one that every rank
// holds is told by rank 0 and all end in order; any other ends the job at once.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <foregather/base/error.hpp>
#include <foregather/deck/deck.hpp>
#include <foregather/job/job.hpp>
#include <foregather/mesh/control.hpp>
#include <foregather/mesh/session.hpp>
#include <foregather/mesh/stop.hpp>

namespace {

using namespace foregather;

std::string read_deck(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    try {
        std::string text{std::istreambuf_iterator<char>(file), {}};
        if (file) {
            return text;
        }
    } catch (const std::ios_base::failure&) { // a folder opens, but does not read
    }
    base::refuse(path +
                 ": the deck cannot be read; is it a file, and the path right, seen from here?");
}

// The machine file that a deck names, if it names one and is a deck at all: what is wrong with it
// is told by whoever parses it with the file.
std::optional<deck::MachineFile> read_machine(const std::string& text,
                                              const deck::CommandLine& line) {
    std::string path, place;
    try {
        const deck::Deck deck = deck::Deck::parse(text, line.deck_path, line.overrides);
        path = deck.sections().job.name == "plan" ? deck.sections().plan.machine : "";
        place = path.empty() ? "" : deck.where("plan.machine");
    } catch (const base::Error&) {
        return std::nullopt;
    }
    if (path.empty()) {
        return std::nullopt;
    }
    try {
        return deck::MachineFile{path, read_deck(path)};
    } catch (const base::Error& error) {
        base::refuse(place + ": " + error.what());
    }
}

// Rank 0 reads the deck and its environment; every rank parses the same text, so decides alike.
deck::Deck parse_together(const deck::CommandLine& line, const mesh::Control& control) {
    nlohmann::json parcel;
    std::string refusal;
    if (control.first()) {
        try {
            const std::string text = read_deck(line.deck_path);
            const auto machine = read_machine(text, line).value_or(deck::MachineFile{});
            parcel = {nlohmann::json::binary({text.begin(), text.end()}),
                      deck::variables_of(text, line.overrides), machine.name,
                      nlohmann::json::binary({machine.text.begin(), machine.text.end()})};
        } catch (const base::Error& error) {
            refusal = error.what();
        }
    }
    refusal = control.broadcast(refusal);
    if (!refusal.empty()) {
        throw mesh::AgreedError(base::Status::refused, refusal);
    }
    const auto packed = nlohmann::json::to_cbor(parcel);
    const std::string bytes = control.broadcast(std::string(packed.begin(), packed.end()));
    parcel = nlohmann::json::from_cbor(bytes);
    const auto& text = parcel[0].get_binary();
    const auto& beneath = parcel[3].get_binary();
    std::optional<deck::MachineFile> machine;
    if (const auto name = parcel[2].get<std::string>(); !name.empty()) {
        machine = {name, {beneath.begin(), beneath.end()}};
    }
    try {
        return deck::Deck::parse({text.begin(), text.end()}, line.deck_path, line.overrides,
                                 parcel[1].get<deck::Variables>(), machine);
    } catch (const base::Error& error) {
        throw mesh::AgreedError(error.status(), error.what());
    }
}

int tell(const base::Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.status());
}

// What is decided without MPI is decided alike by every process that a launcher started: one
// speaks.
void say_once(const std::string& text) {
    if (mesh::speaks_before_mpi()) {
        std::fputs(text.c_str(), stdout);
    }
}

int run(int argc, char** argv, const deck::CommandLine& line) {
    job::Start start{line.deck_path, {argv, argv + argc}, "", 0, std::chrono::steady_clock::now()};
    start.started_unix_s = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    mesh::StopSignals signals; // noted from here on: starting may take long
    std::optional<mesh::Session> session;
    try {
        session.emplace(&argc, &argv);
    } catch (const base::Error& error) {
        return tell(error); // each process may be alone in believing that there are others
    }
    start.launcher_warning = session->warning();
    const mesh::Control control(MPI_COMM_WORLD);
    try {
        if (line.mode == deck::CommandLine::Mode::self_test) {
            signals.give_up();
            return static_cast<int>(job::self_test(start));
        }
        const deck::Deck deck = parse_together(line, control);
        session->end_within(deck.sections().comm.timeout_s);
        if (!job::stops_in_order(deck)) {
            signals.give_up();
        }
        return static_cast<int>(job::run(deck, start));
    } catch (const mesh::AgreedError& error) {
        const int status = control.first() ? tell(error) : static_cast<int>(error.status());
        if (control.max(job::can_finalize() ? 0 : 1) == 1) { // no rank could end in order
            if (!control.first()) {                          // whose abort ends all
                std::this_thread::sleep_for(std::chrono::seconds(5));
            }
            mesh::Session::abort(status);
        }
        return status;
    } catch (const base::Error& error) {
        std::fprintf(stderr, "foregather: rank %d (%s): ", control.rank(),
                     mesh::host_name().c_str());
        mesh::Session::abort(tell(error));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "foregather: rank %d (%s): %s\n", control.rank(),
                     mesh::host_name().c_str(), error.what());
        mesh::Session::abort(static_cast<int>(base::Status::failed));
    }
}

int dispatch(int argc, char** argv) {
    const deck::CommandLine line =
        deck::parse_command_line({argv + 1, static_cast<std::size_t>(argc - 1)});
    switch (line.mode) {
    case deck::CommandLine::Mode::run:
    case deck::CommandLine::Mode::self_test:
        return run(argc, argv, line);
    case deck::CommandLine::Mode::check: {
        const std::string text = read_deck(line.deck_path);
        const auto parsed =
            deck::Deck::parse(text, line.deck_path, line.overrides,
                              deck::variables_of(text, line.overrides), read_machine(text, line));
        say_once(job::check(parsed, line.deck_path, line.ranks, line.ranks_per_node));
        return 0;
    }
    case deck::CommandLine::Mode::templ:
        say_once(deck::template_text(line.template_job));
        return 0;
    case deck::CommandLine::Mode::help:
        say_once(deck::help_text(line.help_topic));
        return 0;
    case deck::CommandLine::Mode::version:
        say_once(job::version_text());
        return 0;
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return dispatch(argc, argv);
    } catch (const base::Error& error) {
        if (mesh::speaks_before_mpi()) {
            return tell(error);
        }
        // A launcher ends all processes when the first has failed: that must be the one who speaks.
        std::this_thread::sleep_for(std::chrono::seconds(3));
        return static_cast<int>(error.status());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "foregather: %s\n", error.what());
        return static_cast<int>(base::Status::failed);
    }
}
