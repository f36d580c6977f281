// SPDX-License-Identifier: Apache-2.0
// Windows and packs against their definitions, by looking at every token: who scores it, with how
// much context, and which row is whose.
#include "../../../src/job/packs.hpp"

#include <map>
#include <set>

#include "documents_fixture.hpp"

namespace foregather::job {
namespace {

// The window of a document, among those that hold token t behind their first, that starts first:
// every start but those beyond the last one needed is tried.
base::Elements longest_context(base::Range document, base::Elements t, const Cut& cut) {
    for (base::Elements begin = document.begin;; begin += cut.stride) {
        if (t < begin + cut.window) {
            return t - begin;
        }
    }
}

// Every token and every row of all windows, judged one by one.
void judge(const io::TokenFile& tokens, const Cut& cut) {
    for (std::int64_t d = 0; d < tokens.documents(); ++d) {
        const auto at = static_cast<std::size_t>(d);
        const base::Range document{tokens.offsets()[at], tokens.offsets()[at + 1]};
        std::map<base::Elements, std::int64_t> owner, row_owner;
        const std::int64_t windows = windows_of(tokens, d, cut);
        for (std::int64_t k = 0; k < windows; ++k) {
            const Window w = window_at(tokens, d, k, cut);
            EXPECT_LE(w.tokens.size(), cut.window);
            EXPECT_TRUE(document.empty() || !w.own.empty()) << "window " << k << " scores nothing";
            for (base::Elements t = w.own.begin; t < w.own.end; ++t) {
                EXPECT_TRUE(owner.emplace(t, k).second) << t << " is owned twice";
                EXPECT_EQ(t - w.tokens.begin, longest_context(document, t, cut)) << t;
            }
            for (base::Elements t = w.rows.begin; t < w.rows.end; ++t) {
                EXPECT_TRUE(row_owner.emplace(t, k).second) << t << " has two rows";
                EXPECT_TRUE(t >= w.tokens.begin && t < w.tokens.end);
            }
        }
        EXPECT_EQ(std::ssize(owner), document.size());
        EXPECT_EQ(std::ssize(row_owner), document.size());
        for (base::Elements t = document.begin; t < document.end; ++t) {
            const bool next_scored =
                t + 1 < document.end && t + 1 >= document.begin + tokens.score_from(d);
            EXPECT_EQ(row_owner.at(t), owner.at(next_scored ? t + 1 : t)) << t;
        }
    }
}

TEST(Windows, ScoreEveryTokenOnceWithItsLongestContext) {
    const Documents documents({0, 1, 2, 3, 4, 5, 9, 10, 11, 23, 40},
                              {1, 1, 1, 1, 2, 5, 1, 4, 8, 17, 99});
    for (const std::int64_t window : {2, 3, 4, 7, 10, 64}) {
        for (std::int64_t stride = 1; stride < std::min<std::int64_t>(window, 12); ++stride) {
            judge(documents.file(), make_cut(window, stride));
        }
    }
}

TEST(Windows, AreNoMoreThanScoreSomethingNew) {
    const Documents documents({10});
    const auto count = [&](std::int64_t window, std::int64_t stride) {
        return windows_of(documents.file(), 0, make_cut(window, stride));
    };
    EXPECT_EQ(count(0, 0), 1);
    EXPECT_EQ(count(10, 0), 1);
    EXPECT_EQ(count(4, 0), 3); // 0..4, 3..7, 6..10: one at 9 would score nothing
    EXPECT_EQ(count(4, 1), 7);
    EXPECT_EQ(count(2, 1), 9);
    EXPECT_EQ(make_cut(4, 0).stride, 3);
}

// The inputs of all packs of a plan, checked against the documents.
void fill_all(const io::TokenFile& tokens, const PackPlan& plan, bool all_rows) {
    std::set<std::int64_t> scored, rows;
    for (const Pack& pack : plan.packs) {
        PackInputs in;
        fill(in, pack, tokens, plan.cut, all_rows);
        ASSERT_EQ(std::ssize(in.ids), pack.tokens);
        ASSERT_EQ(std::ssize(in.offsets), pack.windows + 1);
        ASSERT_EQ(in.offsets.back(), pack.tokens);
        ASSERT_EQ(std::ssize(in.rows), all_rows ? pack.rows.size() : pack.scored);
        for (std::size_t s = 0; s < in.rows.size(); ++s) {
            const std::int32_t id = in.ids[static_cast<std::size_t>(in.rows[s])];
            EXPECT_EQ(in.targets[s], in.scores[s]); // ids ascend with tokens
            EXPECT_TRUE(in.scores[s] == -1 || in.scores[s] == id + 1);
            if (in.scores[s] >= 0) {
                EXPECT_TRUE(scored.insert(in.scores[s]).second);
                EXPECT_TRUE(in.scores[s] >= pack.own.begin && in.scores[s] < pack.own.end);
            }
            if (all_rows) {
                EXPECT_EQ(id, pack.rows.begin + static_cast<std::int64_t>(s));
                rows.insert(id);
            }
        }
    }
    EXPECT_EQ(std::ssize(scored), plan.scored);
    EXPECT_EQ(std::ssize(rows), all_rows ? tokens.tokens() : 0);
}

TEST(Packs, HoldWholeWindowsAndCoverTheFileInOrder) {
    const Documents documents({5, 0, 23, 1, 9, 40, 2}, {1, 1, 3, 1, 9, 1, 1});
    for (const std::int64_t window : {0, 2, 4, 8}) {
        for (const std::int64_t batch : {1, 8, 11, 1000}) {
            const PackPlan plan = make_packs(documents.file(), batch, 0, 64, make_cut(window, 0));
            base::Elements own = 0, row = 0;
            for (const Pack& pack : plan.packs) {
                EXPECT_EQ(pack.own.begin, own);
                EXPECT_EQ(pack.rows.begin, row);
                EXPECT_TRUE(pack.tokens <= batch || pack.windows == 1);
                own = pack.own.end;
                row = pack.rows.end;
            }
            EXPECT_EQ(own, 80);
            EXPECT_EQ(row, 80);
            EXPECT_EQ(plan.scored, 4 + 0 + 20 + 0 + 0 + 39 + 1);
            fill_all(documents.file(), plan, false);
            fill_all(documents.file(), plan, true);
        }
    }
}

TEST(Packs, NameDocumentsThatSeveralOfThemScore) {
    const Documents documents({3, 10, 3, 10});
    EXPECT_EQ(make_packs(documents.file(), 8, 0, 64).split_documents, Ints{});
    EXPECT_EQ(make_packs(documents.file(), 8, 0, 64, make_cut(4, 0)).split_documents, (Ints{1, 3}));
    EXPECT_EQ(make_packs(documents.file(), 1000, 0, 64, make_cut(4, 0)).split_documents, Ints{});
}

} // namespace
} // namespace foregather::job
