// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do at most, measured: fp32 multiply-adds of the best instruction set, and
// bytes moved by a copy past the caches.
#ifndef VOLUP_BENCH_CPU_MACHINE_H_
#define VOLUP_BENCH_CPU_MACHINE_H_

#include "device.h"

namespace volup::bench {

// Multiply-adds a second of all the device's threads together; 0 where no loop is written for its
// instruction set.
double multiply_add_rate(Device& device);

// Bytes a second, read plus written, of all the device's threads together.
double copy_rate(Device& device);

}  // namespace volup::bench

#endif  // VOLUP_BENCH_CPU_MACHINE_H_
