// SPDX-License-Identifier: Apache-2.0
// Headers that nearly every test includes, compiled once for all of them. Tests still include what
// they use.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>
