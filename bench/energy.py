"""The machine's energy counters, by the rules of src/machine/energy.h: for programs that do not report their own."""
import ctypes
import pathlib


def _rapl(root, missing):
    """(name, microjoules as a function, range) of each processor package and its memory; the platform only without packages."""
    folder = root / "sys/class/powercap"
    domains = sorted(folder.glob("intel-rapl:*")) if folder.exists() else []
    if not domains:
        missing.append(f"RAPL: {folder} has no intel-rapl domain: a virtual machine, or a processor without it")
    names = {}
    for domain in domains:
        names[domain] = (domain / "name").read_text().strip()
    place = lambda domain: domain.name.split(":")[1:]
    packages = any(len(place(d)) == 1 and name.startswith("package") for d, name in names.items())
    for domain, name in names.items():
        part = len(place(domain)) > 1
        if (name != "dram") if part else (name == "psys" and packages):
            continue
        name = f"RAPL {name}" + (f"-{place(domain)[0]}" if part else "")
        try:
            size = int((domain / "max_energy_range_uj").read_text())
        except (OSError, ValueError) as error:
            missing.append(f"{name}: {error}")
            continue
        yield name, lambda file=domain / "energy_uj": int(file.read_text()), 1e-6, size


def _gpus(library, missing):
    try:
        nvml = ctypes.CDLL(library)
        nvml.nvmlErrorString.restype = ctypes.c_char_p

        def check(result):
            if result != 0:
                raise OSError(nvml.nvmlErrorString(result).decode())

        check(nvml.nvmlInit_v2())
        count = ctypes.c_uint()
        check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        for index in range(count.value):
            device, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            check(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)))
            check(nvml.nvmlDeviceGetName(device, name, len(name)))

            def millijoules(device=device):
                energy = ctypes.c_ulonglong()
                check(nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy)))
                return energy.value

            yield f"GPU {index}, {name.value.decode()}", millijoules, 1e-3, 0
    except (OSError, AttributeError) as error:  # AttributeError: a library without one of these
        missing.append(f"NVML: {error}")


class EnergyMeter:
    """`counters` by name, `missing` with reasons. One thread."""

    def __init__(self, root="/", nvml="libnvidia-ml.so.1"):
        self.counters, self.missing, self._read = [], [], []
        for name, read, unit, size in (*_rapl(pathlib.Path(root), self.missing), *_gpus(nvml, self.missing)):
            try:
                last = read()
            except (OSError, ValueError) as error:
                self.missing.append(f"{name}: {error}")
                continue
            self.counters.append(name)
            self._read.append([read, unit, size, last, 0.0])

    def joules(self):
        """Used since the meter was made, all counters together; None where none can be read, or one no longer can."""
        total = 0.0
        for name, counter in zip(self.counters, self._read):
            read, unit, size, last, joules = counter
            if joules is not None:
                try:
                    now = read()
                    counter[3:] = now, joules + unit * (now - last + (size if now < last else 0))
                except (OSError, ValueError) as error:
                    self.missing.append(f"{name}: {error}")
                    counter[4] = None
            total = None if total is None or counter[4] is None else total + counter[4]
        return total if self.counters else None
