/* driver.h - runs a written kernel in the twin: each core is a process; they share global memory.
 *
 * Parameter i comes from the file i.in of a folder (without one a tensor is zeros); what tensors hold afterwards goes
 * to i.out, faults go to the file `faults`. Blocks run one after another, or all together where they wait for each
 * other. Exit status: 0 it ran, with faults or without; 2 it could not. */
#ifndef TWIN_DRIVER_H
#define TWIN_DRIVER_H

#include <csignal>
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
  explicit TwinDriver(const char *folder) : folder_(folder), faults_(open("faults", "w")) {}

  template <typename T> T scalar(int i)
  {
    T value;
    read(i, &value, sizeof value, true);
    return value;
  }

  uint8_t *tensor(const char *name, int i, size_t bytes, int element)
  {
    uint8_t *p = shared(bytes + Room);
    read(i, p, bytes, false);
    twin_tensor(name, p, bytes, Room, element, shared(twin_shadow_bytes(bytes, element)));
    tensors_.push_back({i, p, bytes});
    return p;
  }

  /* cores: which of a block's there are. together: blocks wait for each other. */
  int run(int64_t blocks, std::vector<bool> there, bool together, const std::function<void()> &kernel)
  {
    const bool cores[TW_CORES] = {there[0], there[1], there[2]};
    const int64_t group = together ? blocks : 1;
    bool bad = false;
    for (int64_t first = 0; first < blocks && !bad; first += group) {
      void *flags = shared(twin_shared_bytes(int(group)));
      std::vector<pid_t> running;
      twin_share(flags, int(first), int(group), cores);
      for (int b = 0; b < group; b++)
        for (int c = 0; c < TW_CORES; c++)
          if (cores[c]) running.push_back(begin(int(first), b, c, there[2] ? 2 : 1, flags, kernel));
      bad = end(running);
      if (!bad && twin_left(flags)) bad = true, fputs(twin_faults(), faults_);
      munmap(flags, twin_shared_bytes(int(group)));
    }
    for (const Tensor &t : tensors_) {
      FILE *f = open(std::to_string(t.number) + ".out", "w");
      if (fwrite(t.at, 1, t.bytes, f) != t.bytes || fclose(f) != 0) return 2;
    }
    return fclose(faults_) == 0 ? 0 : 2;
  }

private:
  struct Tensor { int number; uint8_t *at; size_t bytes; };
  enum : size_t { Room = 4096 };

  FILE *open(const std::string &name, const char *how)
  {
    FILE *f = fopen((folder_ + "/" + name).c_str(), how);
    if (f == nullptr && *how == 'w') exit(2);
    return f;
  }

  void read(int i, void *to, size_t bytes, bool needed)
  {
    FILE *f = open(std::to_string(i) + ".in", "r");
    if ((f == nullptr && needed) || (f != nullptr && fread(to, 1, bytes, f) != bytes)) exit(2);
    if (f != nullptr) fclose(f);
  }

  static uint8_t *shared(size_t bytes)
  {
    void *p = mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) exit(2);
    return static_cast<uint8_t *>(p);
  }

  pid_t begin(int first, int b, int c, int vector_cores, void *flags, const std::function<void()> &kernel)
  {
    fflush(faults_);
    pid_t child = fork();
    if (child != 0) return child;
    block_idx = first + b;
    g_taskRation = vector_cores;
    g_coreType = c == TW_CUBE ? AscendC::AIC_TYPE : AscendC::AIV_TYPE;
    sub_block_idx = c == TW_VECTOR1;
    twin_begin(flags, b, c);
    kernel();
    const int n = twin_end();
    const std::string core = c == TW_CUBE ? "cube core" : "vector core " + std::to_string(c - TW_VECTOR0);
    const std::string text = twin_faults();
    for (size_t at = 0, next; at < text.size(); at = next + 1) {
      next = text.find('\n', at);
      fprintf(faults_, "block %d, %s: %s\n", first + b, core.c_str(), text.substr(at, next - at).c_str());
    }
    fflush(faults_);
    _exit(n != 0);
  }

  /* A core that dies leaves the others waiting: they end with it. */
  bool end(const std::vector<pid_t> &running)
  {
    bool bad = false;
    int status;
    for (pid_t p; (p = wait(&status)) > 0;) {
      bad |= status != 0;
      if (!WIFSIGNALED(status)) continue;
      if (WTERMSIG(status) != SIGKILL) fprintf(faults_, "a core was ended by signal %d\n", WTERMSIG(status));
      for (pid_t other : running)
        if (other != p) kill(other, SIGKILL);
    }
    return bad;
  }

  std::string folder_;
  FILE *faults_;
  std::vector<Tensor> tensors_;
};

#endif
