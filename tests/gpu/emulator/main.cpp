#include "cuda/emu.h"
#include <thread>
#include <ucontext.h>
#include <cstdio>
#include "contract.h"
#include "cuda/emu.h"
#include "cuda/mma_march.cu"
emu::Dim threadIdx, blockIdx, gridDim;
namespace emu { Warp warps[64]; Bar group_bars[16]; int group_flag[16]; Bar block_bar; float* smem; int switches;
ucontext_t mainc, fib[640]; std::vector<std::vector<char>> stacks(640, std::vector<char>(256 << 10)); bool done[640]; void (*fn)(const volup::mma_march::Parameters); volup::mma_march::Parameters par;
void entry(int i) { fn(par); done[i] = true; swapcontext(&fib[i], &mainc); }
void yield() { unsigned me = threadIdx.x; swapcontext(&fib[me], &mainc); threadIdx.x = me; }
void wait(Bar& b, int n) { unsigned g = b.gen; if (++b.arrived == n) { b.arrived = 0; ++b.gen; return; } long spins = 0; while (b.gen == g) { yield(); if (++spins > 2000000) { printf("stuck\n"); exit(1); } } }
}
extern "C" cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3, void** args, size_t, cudaStream_t) {
  using namespace emu; fn = (void (*)(const volup::mma_march::Parameters))f; par = *(volup::mma_march::Parameters*)args[0]; gridDim.x = grid.x;
  for (unsigned b = 0; b < grid.x; ++b) { blockIdx.x = b; memset(group_flag, 0, sizeof group_flag);
    for (int i = 0; i < 640; ++i) { done[i] = false; getcontext(&fib[i]); fib[i].uc_stack.ss_sp = stacks[i].data(); fib[i].uc_stack.ss_size = stacks[i].size(); fib[i].uc_link = nullptr; makecontext(&fib[i], (void (*)())entry, 1, i); }
    for (bool any = true; any;) { any = false; for (int i = 0; i < 640; ++i) if (!done[i]) { any = true; threadIdx.x = i; swapcontext(&mainc, &fib[i]); } } }
  return cudaSuccess; }
extern "C" const char* cudaGetErrorString(cudaError_t) { return "?"; }
using namespace volup; using namespace volup::test;
std::vector<float> run(Case& c, bool* ok) {
  DeviceProperties d; d.type = DeviceType::kCuda; d.compute_capability = 90; d.multiprocessors = 2; d.shared_memory_bytes = 232448;
  auto m = c.model(); *ok = mma_march::takes(c.problem, d); if (!*ok) return {};
  auto packed = mma_march::pack(*m, c.problem); auto launch = mma_march::prepare(c.problem, d, {packed.data(), nullptr, 0});
  size_t es = element_size(c.problem.io); std::vector<unsigned char> x(c.x.size() * es), out(count_of(c.problem.output) * es + 64, 0xff);
  for (size_t i = 0; i < c.x.size(); ++i) store_element(c.problem.io, x.data(), i, c.x[i]);
  RunArguments a{}; a.x = x.data(); a.out = out.data(); launch->run(a);
  std::vector<float> r(count_of(c.problem.output)); for (size_t i = 0; i < r.size(); ++i) r[i] = (float)load_element(c.problem.io, out.data(), i);
  for (int i = 0; i < 64; ++i) if (out[out.size() - 64 + i] != 0xff) printf("CANARY\n");
  return r; }
#include "cases.inc"
