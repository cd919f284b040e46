/* driver.h - runs a written kernel in the twin: each core of a block is a process; they share global memory.
 *
 * Arguments are files NAME.in in a folder; what tensors hold afterwards goes to NAME.out, faults go to standard output.
 * Blocks run one after another: a kernel whose blocks wait for each other is not run (twin.py refuses it). */
#ifndef TWIN_DRIVER_H
#define TWIN_DRIVER_H

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "twin.h"

class TwinDriver {
public:
  explicit TwinDriver(const char *folder) : folder_(folder) {}

  uint8_t *tensor(const char *name, size_t bytes)
  {
    uint8_t *p = shared(bytes);
    FILE *f = fopen((folder_ + "/" + name + ".in").c_str(), "rb");
    if (f == nullptr || fread(p, 1, bytes, f) != bytes) {
      fprintf(stderr, "cannot read %s.in\n", name);
      exit(2);
    }
    fclose(f);
    tensors_.push_back({name, p, bytes});
    return p;
  }

  /* cores: of one block, 0 the cube core, 1 and 2 the vector cores. Returns the exit status. */
  int run(int blocks, std::vector<int> cores, const std::function<void()> &kernel)
  {
    uint8_t *flags = shared(twin_shared_bytes());
    bool bad = false;
    for (int b = 0; b < blocks && !bad; b++) {
      __builtin_memset(flags, 0, twin_shared_bytes());
      fflush(stdout);
      for (int c : cores)
        if (fork() == 0) core(b, c, cores.size() == 3 ? 2 : 1, flags, kernel);
      int status;
      while (wait(&status) > 0) bad |= status != 0;
    }
    for (const Tensor &t : tensors_) {
      FILE *f = fopen((folder_ + "/" + t.name + ".out").c_str(), "wb");
      if (f == nullptr || fwrite(t.at, 1, t.bytes, f) != t.bytes || fclose(f) != 0) return 2;
    }
    return bad;
  }

private:
  struct Tensor { std::string name; uint8_t *at; size_t bytes; };

  static uint8_t *shared(size_t bytes)
  {
    void *p = mmap(nullptr, bytes + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(2);
    return static_cast<uint8_t *>(p);
  }

  [[noreturn]] static void core(int block, int c, int vector_cores, void *flags, const std::function<void()> &kernel)
  {
    block_idx = block;
    g_taskRation = vector_cores;
    g_coreType = c ? AscendC::AIV_TYPE : AscendC::AIC_TYPE;
    sub_block_idx = c > 1;
    twin_begin(flags);
    kernel();
    int faults = twin_end();
    const char *kind = c ? "vector" : "cube";
    if (faults) printf("block %d, %s core %d: %d faults\n%s", block, kind, c > 1, faults, twin_faults());
    fflush(stdout);
    _exit(faults != 0);
  }

  std::string folder_;
  std::vector<Tensor> tensors_;
};

#endif
