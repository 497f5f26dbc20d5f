// SPDX-License-Identifier: MIT
// A library with NVML's name and a script instead of a driver, for tests of the plumbing: it says nothing about what
// a real driver answers. $NVML_SCRIPT names a file of lines "key value", where a key is "GPU.quantity",
// "GPU/SLICE.quantity" or "quantity", and a value "!N" makes the call return NVML's status N. Structures are those of nvml.h (12.x).
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LOST = 15 };
enum { MAX_GPUS = 8, SLICES = 7 };

typedef struct Device {
    int index;
    int slice;  // -1: the whole GPU
} Device;

static Device gpus[MAX_GPUS], slices[MAX_GPUS][SLICES];
static int utilization_reads[MAX_GPUS], samples_taken, samples_held;

// The value of a key; a GPU's own before everybody's, then `otherwise`. Returns the status.
static int script(const Device* device, const char* key, double otherwise, double* value) {
    char own[64], name[64], word[64];
    if (device && device->slice >= 0)
        snprintf(own, sizeof own, "%d/%d.%s", device->index, device->slice, key);
    else
        snprintf(own, sizeof own, "%d.%s", device ? device->index : 0, key);
    int status = OK, rank = 0;
    *value = otherwise;
    FILE* file = fopen(getenv("NVML_SCRIPT"), "r");
    if (!file) return 999;
    while (fscanf(file, "%63s %63s", name, word) == 2) {
        const int found = device && strcmp(name, own) == 0 ? 2 : strcmp(name, key) == 0 ? 1 : 0;
        if (found <= rank) continue;
        rank = found;
        status = word[0] == '!' ? atoi(word + 1) : OK;
        if (status == OK) *value = atof(word);
    }
    fclose(file);
    return status;
}

// As `script`, for what a GPU must be there for.
static int ask(const Device* device, const char* key, double otherwise, double* value) {
    double gone_after;
    script(device, "gone_after", 1e9, &gone_after);
    if (utilization_reads[device->index] > gone_after) return LOST;
    return script(device, key, otherwise, value);
}

static int ask_unsigned(Device* device, const char* key, double otherwise, unsigned* value) {
    double found;
    const int status = ask(device, key, otherwise, &found);
    if (status == OK) *value = (unsigned)found;
    return status;
}

int nvmlInitWithFlags(unsigned flags) {
    double value;
    (void)flags;
    for (int i = 0; i < MAX_GPUS; ++i) {
        gpus[i] = (Device){i, -1};
        for (int j = 0; j < SLICES; ++j) slices[i][j] = (Device){i, j};
    }
    return script(NULL, "init", 0, &value);
}
int nvmlShutdown(void) {
    fprintf(stderr, "stub: shutdown, %d samples held\n", samples_held);
    return OK;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
    double value;
    const int status = script(NULL, "count", 1, &value);
    *count = (unsigned)value;
    return status;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device** device) {
    *device = &gpus[index];
    return OK;
}
int nvmlDeviceGetUUID(Device* device, char* text, unsigned length) {
    snprintf(text, length, "GPU-%d%d%d%d-stub", device->index, device->index, device->index, device->index);
    return OK;
}
int nvmlDeviceGetMigMode(Device* device, unsigned* now, unsigned* later) {
    const int status = ask_unsigned(device, "mig", 0, now);
    *later = *now;
    return status;
}
int nvmlDeviceGetMaxMigDeviceCount(Device* device, unsigned* count) { return ask_unsigned(device, "slots", 7, count); }
int nvmlDeviceGetMigDeviceHandleByIndex(Device* device, unsigned slot, Device** slice) {
    double slices_made;
    script(device, "slices", 0, &slices_made);
    if (slot >= slices_made) return NOT_FOUND;
    *slice = &slices[device->index][slot];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device* device, unsigned* instance) {
    *instance = (unsigned)device->slice + 7;
    return OK;
}

typedef struct Rates {
    unsigned gpu, memory;
} Rates;
int nvmlDeviceGetUtilizationRates(Device* device, Rates* rates) {
    ++utilization_reads[device->index];
    const int status = ask_unsigned(device, "gpu_util", 50, &rates->gpu);
    return status ? status : ask_unsigned(device, "memory_util", 20, &rates->memory);
}

typedef struct Memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory;
int nvmlDeviceGetMemoryInfo_v2(Device* device, Memory* memory) {
    double used;
    const int status = ask(device, "memory_used", 1024, &used);
    memory->total = 4096, memory->reserved = 512, memory->used = (unsigned long long)used;
    return status;
}

typedef struct Field {
    uint32_t id, scope;
    int64_t time, latency;
    int type, status;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
} Field;
int nvmlDeviceGetFieldValues(Device* device, int count, Field* fields) {
    for (int i = 0; i < count; ++i)
        fields[i].status = ask_unsigned(device, fields[i].id == 186 ? "power_instant" : "field", 300000, &fields[i].value.u);
    return OK;
}
int nvmlDeviceGetPowerUsage(Device* device, unsigned* mw) { return ask_unsigned(device, "power", 250000, mw); }
int nvmlDeviceGetEnforcedPowerLimit(Device* device, unsigned* mw) { return ask_unsigned(device, "limit", 700000, mw); }
int nvmlDeviceGetTotalEnergyConsumption(Device* device, unsigned long long* mj) {
    double value;
    const int status = ask(device, "energy", 5000, &value);
    *mj = (unsigned long long)value;
    return status;
}
int nvmlDeviceGetClockInfo(Device* device, int domain, unsigned* mhz) {
    return ask_unsigned(device, domain == 1 ? "sm_clock" : "memory_clock", 1980, mhz);
}
int nvmlDeviceGetMaxClockInfo(Device* device, int domain, unsigned* mhz) {
    return ask_unsigned(device, domain == 1 ? "sm_max" : "memory_max", 1980, mhz);
}
int nvmlDeviceGetCurrentClocksEventReasons(Device* device, unsigned long long* bits) {
    double value;
    const int status = ask(device, "reasons", 0, &value);
    *bits = (unsigned long long)value;
    return status;
}
int nvmlDeviceGetTemperature(Device* device, int sensor, unsigned* degrees) {
    return sensor ? INVALID : ask_unsigned(device, "temperature", 45, degrees);
}

typedef struct Process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device* device, unsigned* count, Process* processes) {
    double wanted;
    const int status = ask(device, "processes", 0, &wanted);
    if (status || wanted == 0) {
        *count = 0;
        return status;
    }
    const unsigned room = *count;
    *count = (unsigned)wanted;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; ++i) processes[i] = (Process){4000000 + i, 100, 0, 0};
    return OK;
}

typedef struct Support {
    unsigned version, supported;
} Support;
int nvmlGpmQueryDeviceSupport(Device* device, Support* support) {
    return ask_unsigned(device, "gpm", 0, &support->supported);
}
typedef struct Sample {
    int taken, instance;
} Sample;
int nvmlGpmSampleAlloc(Sample** sample) {
    *sample = calloc(1, sizeof(Sample));
    ++samples_held;
    return OK;
}
int nvmlGpmSampleFree(Sample* sample) {
    free(sample);
    --samples_held;
    return OK;
}
int nvmlGpmSampleGet(Device* device, Sample* sample) {
    double value;
    *sample = (Sample){++samples_taken, -1};
    return ask(device, "gpm_sample", 0, &value);
}
int nvmlGpmMigSampleGet(Device* device, unsigned instance, Sample* sample) {
    double value;
    *sample = (Sample){++samples_taken, (int)instance};
    return ask(device, "gpm_sample", 0, &value);
}
typedef struct Metric {
    unsigned id;
    int status;
    double value;
    char *short_name, *long_name, *unit;
} Metric;
typedef struct MetricsGet {
    unsigned version, count;
    Sample *first, *second;
    Metric metrics[];
} MetricsGet;
int nvmlGpmMetricsGet(MetricsGet* query) {
    if (query->version != 1 || query->first->taken >= query->second->taken) return INVALID;
    if (query->first->instance != query->second->instance) return INVALID;
    for (unsigned i = 0; i < query->count; ++i) {
        Metric* metric = &query->metrics[i];
        metric->status = metric->id == 60 || metric->id == 61 ? NOT_SUPPORTED : OK;
        // Its own number, and for a slice that of the instance too: the test then knows which is which.
        metric->value = metric->id + (query->first->instance >= 0 ? 100.0 * query->first->instance : 0.0);
    }
    return OK;
}
