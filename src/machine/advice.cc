#include "src/machine/advice.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "src/machine/mount.h"

namespace canopy {

namespace {

constexpr const char* kAllowInSandbox =
    "in a container: docker run --security-opt seccomp=unconfined";

bool may_administer() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> held{};
  return syscall(SYS_capget, &header, held.data()) == 0 &&
         (held[0].effective & (1u << CAP_SYS_ADMIN)) != 0;
}

/// 0 allows it to all, 1 to administrators, 2 to nobody; kernels before 6.6 lack the file.
int disabled_by_sysctl() {
  std::ifstream file("/proc/sys/kernel/io_uring_disabled");
  int level = 0;
  return file >> level ? level : 0;
}

std::string advice_on_missing() {
  utsname system{};
  uname(&system);
  int major = 0, minor = 0;
  std::sscanf(system.release, "%d.%d", &major, &minor);
  if (major < 5 || (major == 5 && minor < 11))
    return std::string("Linux ") + system.release + " is too old: use 5.11 or later";
  return std::string("Linux ") + system.release +
         " has it, unless built without CONFIG_IO_URING, so a sandbox hides it; " + kAllowInSandbox;
}

}  // namespace

std::string io_uring_advice(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      if (const int level = disabled_by_sysctl(); level == 2 || (level == 1 && !may_administer()))
        return "a sysctl forbids it; as root: sysctl kernel.io_uring_disabled=0";
      return std::string("a sandbox (seccomp) forbids it; ") + kAllowInSandbox;
    case ENOSYS:
      return advice_on_missing();
    case ENOMEM:
      return memlock_advice();
    default:
      return "see io_uring_setup(2)";
  }
}

std::string memlock_advice() {
  return "raise the memlock limit of the shell that starts canopy: sudo prlimit --pid $$ "
         "--memlock=unlimited:unlimited; of a container: docker run --ulimit memlock=-1";
}

std::string direct_advice(const std::filesystem::path& file) {
  const Mount mount = mount_of(file);
  if (mount.type == "overlay")
    return "keep the model out of the container's layers: docker run -v /HOST/MODELS:/MODELS";
  if (mount.point != "/" && ("," + mount.options + ",").find(",data=journal,") != std::string::npos)
    return "mount it without data=journal: umount " + mount.point + " && mount -o data=ordered " +
           mount.device + " " + mount.point;
  return "keep the model on a local disk (ext4, xfs, btrfs): cp -r " +
         (file.has_parent_path() ? file.parent_path() : ".").string() + " /LOCAL/DISK/";
}

}  // namespace canopy
