// SPDX-License-Identifier: Apache-2.0
// What makes two starts one run, as rows of a name and a value, and what differs between two.
// Which rows a job has, and what follows from a difference, is its own affair.
#pragma once

#include <string>
#include <vector>

#include <foregather/deck/deck.hpp>
#include <foregather/io/earlier.hpp>

namespace foregather::job {

// What computes, as far as it decides bits. Empty for --check, which compares none of it.
struct Machine {
    std::string device, products, weights_type;
};

// Adds the keys of the deck's job that are not free, but `except`.
void add_keys(std::vector<io::IdentityRow>& rows, const deck::Deck& deck,
              const std::vector<std::string>& except);
// Adds versions of the program and its parts, as told ones.
void add_versions(std::vector<io::IdentityRow>& rows);

// Everything in which `now` differs from what is stored, a line each, of the rows that are `told`
// or of the others. What is empty in `now` is not compared.
std::vector<std::string> differences(const std::vector<io::IdentityRow>& stored,
                                     const std::vector<io::IdentityRow>& now, bool told);

} // namespace foregather::job
