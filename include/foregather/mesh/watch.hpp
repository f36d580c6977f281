// SPDX-License-Identifier: Apache-2.0
// Notices what collectives cannot: a rank that has fallen silent or never comes to an exchange,
// file work that no longer moves, and a step that takes far longer than those before. A thread of
// each rank sends a pulse to the next rank and listens to the one before it; ranks that are slow
// report to rank 0, which tells.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <foregather/mesh/at_work.hpp>
#include <foregather/mesh/control.hpp>
#include <foregather/mesh/topology.hpp>

namespace foregather::mesh {

struct Pulse;
struct SlowReport;
class SlowNotes;

class Watch {
public:
    // Collective. A rank that sends nothing for 1.25 x timeout + 5 s (more than a gather's own
    // limit, so that the gather names who is missing first), or file work that moves no byte for
    // timeout_s, ends the job with one line on stderr. So does a rank that has not come to an
    // exchange of `control` that others wait in for 1.25 x timeout + 3 s, if nothing has moved
    // there either for as long (base/moves.hpp): it may be busy with what the others wait for.
    // `control` must outlive this.
    Watch(const Topology& topology, const Control& control, double timeout_s);
    // Says goodbye and waits for the rank before to say so too, unless an exception is on its way.
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Runs `work` under the progress watch: `moved` counts bytes and may be called from another
    // thread; `what` names the work and the file. Blocks as long as `work` does.
    void file_work(const std::string& what, const std::function<std::int64_t()>& moved,
                   const std::function<void()>& work);

    // What the main thread has in hand; begin() ends what it had before. A step, pass or save that
    // takes more than 10 x the median of those before it, and more than a second, is told by rank
    // 0's thread as a note on stdout, with what each rank does: see AtWork.
    void begin(const std::string& kind, std::int64_t number);
    void end();
    void doing(const std::string& what);
    // Has it been in hand so long that doing() should be told exactly? Cheap.
    bool wants_detail() const;
    // Rank 0: notes that were told since the last call; `last`: and those that were to come. Empty
    // elsewhere.
    std::vector<std::string> take_notes(bool last = false);

    // The longest that the rank before has been silent, and that file work has not moved, so far.
    double longest_silence_s() const { return longest_silence_s_.load(); }
    double longest_standstill_s() const { return longest_standstill_s_.load(); }

private:
    struct Wait; // of this rank, for others
    void run();
    void listen(double now);
    void look_at_moves(double now);
    Wait own_wait(double now) const;
    void judge(double now);
    std::string own_place() const;
    double exchange_limit_s() const { return 1.25 * timeout_s_ + 3; }
    void look_at_file_work(double now);
    void send(bool goodbye);
    template <class Message>
    void post(const Message& message, int to, int with_tag);
    bool all_taken();
    void hear_before(double now);
    void report_slow(double now);
    void send_report(double now);
    void hear_reports(double now);
    void tell(double now, bool all);
    void end_reports();

    Comm comm_;
    const Control& control_;
    int rank_, size_;
    std::string before_; // "rank 3 (host)"
    double timeout_s_;
    AtWork at_work_;
    std::unique_ptr<Pulse> heard_; // what that rank said last
    double last_pulse_s_ = 0;
    double awake_since_s_ = 0; // this process, when it was last seen to have been stopped
    std::int64_t last_moves_ = 0;
    double last_sign_s_ = 0; // of anything that moves here
    int in_a_row_ = 0;       // ranks up to this one that wait in its exchange beyond the limit
    std::optional<double> ending_since_s_;
    struct Outgoing {
        std::vector<std::byte> bytes;
        MPI_Request request;
    };
    std::deque<Outgoing> outgoing_; // pulses and reports that are not taken yet
    bool goodbye_received_ = false;
    double period_s_;                         // between pulses
    double stood_still_s_ = 0;                // this process, when last seen
    std::unique_ptr<SlowReport> last_report_; // of what is in hand
    std::int64_t reports_sent_ = 0, reports_received_ = 0;
    std::atomic<double> longest_silence_s_ = 0, longest_standstill_s_ = 0;

    std::mutex notes_mutex_;
    std::unique_ptr<SlowNotes> slow_notes_; // of rank 0
    std::vector<std::string> notes_;        // told and not taken

    std::mutex mutex_; // guards all below
    std::condition_variable changed_;
    bool stopping_ = false;
    std::string what_; // of the file work in progress
    std::function<std::int64_t()> moved_;
    std::int64_t last_moved_ = 0;
    double last_move_s_ = 0;
    std::thread thread_; // last: it uses all of the above
};

} // namespace foregather::mesh
