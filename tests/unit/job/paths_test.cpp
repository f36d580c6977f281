// SPDX-License-Identifier: Apache-2.0
// Files of a training run that it must not overwrite or remove.
#include "../../../src/job/paths.hpp"

#include <filesystem>

#include "training_fixture.hpp"

namespace foregather::job {
namespace {

using io::testing::expect_refused;

class PathsTest : public testing::Test {
protected:
    PathsTest() {
        std::filesystem::create_directory(folder.in("ck"));
        std::filesystem::copy_file(folder.in("w.h5"), folder.in("ck/step-00000010.h5"));
        std::filesystem::create_symlink("ck/step-00000010.h5", folder.in("link.h5"));
    }
    void look(std::vector<std::string> words, const std::string& deck_path = "train.deck") const {
        words.push_back("--checkpoint.directory=" + folder.in("ck"));
        refuse_overlaps(folder.deck(words), deck_path);
    }
    TrainingFolder folder;
};

TEST_F(PathsTest, MayLieBesideCheckpointsUnderOtherNames) {
    EXPECT_NO_THROW(look({}));
    EXPECT_NO_THROW(look({"--output.file=" + folder.in("ck/results.h5"),
                          "--output.log=" + folder.in("ck/step-10.h5")}));
    EXPECT_NO_THROW(look({"--checkpoint.resume=" + folder.in("ck/step-00000010.h5")}));
    // Another run's checkpoint.
    std::filesystem::create_directory(folder.in("before"));
    std::filesystem::copy_file(folder.in("w.h5"), folder.in("before/step-00000010.h5"));
    EXPECT_NO_THROW(look({"--model.weights=" + folder.in("before/step-00000010.h5")}));
}

TEST_F(PathsTest, AreRefusedUnderTheNameOfACheckpointAmongThem) {
    for (const char* name : {"ck/step-00000010.h5", "link.h5", "ck/../ck/step-00000010.h5"}) {
        expect_refused({"model.weights", name, "command line: checkpoint.directory"},
                       [&] { look({"--model.weights=" + folder.in(name)}); });
    }
    expect_refused({"train.evaluate", "checkpoint.directory"},
                   [&] { look({"--train.evaluate=" + folder.in("ck/step-00000020.h5")}); });
    expect_refused({"output.file", "checkpoint.directory"},
                   [&] { look({"--output.file=" + folder.in("ck/step-00000020.h5")}); });
    expect_refused({"output.log", "checkpoint.directory"},
                   [&] { look({"--output.log=" + folder.in("ck/step-00000020.h5.part")}); });
    expect_refused({"the deck"}, [&] { look({}, folder.in("ck/step-00000020.h5")); });
}

TEST_F(PathsTest, OfInputsAreNoOutputs) {
    for (const char* key : {"train.evaluate", "model.config", "checkpoint.resume"}) {
        expect_refused({"output.log", key}, [&] {
            look({"--" + std::string(key) + "=" + folder.in("other.h5"),
                  "--output.log=" + folder.in("ck/../other.h5"),
                  "--output.file=" + folder.in("o")});
        });
    }
}

} // namespace
} // namespace foregather::job
