// The functions of NVML that EnergyMeter calls, for a machine of two GPUs of which the second
// cannot count. The first has used 2000 mJ more at each reading, from a million on.
#include <cstring>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int result) { return result == 3 ? "Not Supported" : "Unknown"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  static int devices[2] = {0, 1};
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  std::strncpy(name, *static_cast<int*>(device) == 0 ? "Fake H100" : "Fake K80", length);
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* energy) {
  static unsigned long long used = 1'000'000;
  if (*static_cast<int*>(device) != 0) return 3;
  *energy = used += 2000;
  return 0;
}
}
