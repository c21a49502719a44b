#ifndef ATTND_KERNELS_CPU_SYSTEM_H_
#define ATTND_KERNELS_CPU_SYSTEM_H_

#include <cstdint>
#include <string>

namespace attnd::cpu {

// As the vendor calls it; "cpu" where the system does not say.
std::string ProcessorName();
// The machine's memory; 0 where the system does not say.
int64_t SystemMemoryBytes();

}  // namespace attnd::cpu

#endif  // ATTND_KERNELS_CPU_SYSTEM_H_
