// SPDX-License-Identifier: Apache-2.0
//
// volup.hpp as pedantic C++17, twice, before anything else, with every member instantiated.
// Compiling is the test.
#include <type_traits>

#include "volup/volup.hpp"

static_assert(std::is_nothrow_move_constructible_v<volup::Model>);
static_assert(std::is_nothrow_move_constructible_v<volup::Session>);
static_assert(std::is_nothrow_move_constructible_v<volup::Buffer>);
static_assert(!std::is_copy_constructible_v<volup::Model>);
static_assert(!std::is_copy_constructible_v<volup::Session>);
static_assert(!std::is_copy_constructible_v<volup::Buffer>);

// Names that users and the library could both define must not collide: the API lives in an inline
// namespace.
static_assert(std::is_same_v<volup::Model, volup::api::Model>);

template volup_geometry volup::defaults<volup_geometry>();
