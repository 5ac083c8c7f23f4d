// A pretended CUDA card for tests without one: runtime, driver, cuBLAS and NCCL as PyTorch and Triton call them.
//
// Kernels, products and collectives are noted and not run; memory is that of the host; copies from and to the host are made, so that what
// the host wrote comes back. What a stream capture forbids is refused with CUDA's own error code. Loaded before PyTorch (LD_PRELOAD).
//
// CARD_LEDGER  file of lines `nanoseconds kind place device stream text`, separated by tabs. Places: eager, captured, outside (while another
//              stream captures). Kinds: kernel product copy fill collective host wait query record alloc free capture graph replay mark, and
//              `fault` for what must never happen.
// CARD_COUNT   cards of this machine (1)
// CARD_MEMORY  bytes of a card (those of an H200)
// CARD_REFUSES `capture`: every capture ends with an error
// CARD_WORLD   a folder that the ranks of a run share: a wait for a stream with collectives on it lasts until all ranks have called them
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

// ---------------------------------------------------------------- what there is

const size_t kMemory = getenv("CARD_MEMORY") ? atoll(getenv("CARD_MEMORY")) : 150754820096;
constexpr size_t kTaken = 700000000;
constexpr int kShared = 232448, kMaxCards = 8;

struct Capture;
struct Stream {
  int device, number;
  Capture* capture = nullptr;
  long work = 0, joined = 0;  // of a capture: operations so far, and how many of them another of its streams waits for
  long put = 0, passed = 0;   // operations so far, and how many of them the host has waited for
};
struct Event {
  Stream* stream = nullptr;
  Capture* capture = nullptr;
  long work = 0, put = 0;
};
struct Graph {
  int number;
  long nodes = 0;
};
struct Capture {
  Graph* graph;
  Stream* origin;
  std::vector<Stream*> streams;
  cudaError_t broken = cudaSuccess;
};
struct Block {
  size_t bytes;
  int device;  // -1: page-locked memory of the host
};

std::recursive_mutex guard;
using Lock = std::lock_guard<std::recursive_mutex>;
Capture* capturing = nullptr;  // one at a time, as PyTorch does it
thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
thread_local cudaError_t latest = cudaSuccess;
thread_local int current = 0;
int streams_made = 0, graphs_made = 0;
size_t used[kMaxCards], most[kMaxCards];

std::map<uintptr_t, Block>& blocks() {
  static auto* all = new std::map<uintptr_t, Block>;
  return *all;
}
std::map<const void*, std::string>& names() {
  static auto* all = new std::map<const void*, std::string>;
  return *all;
}
int cards() {
  static const int count = getenv("CARD_COUNT") ? atoi(getenv("CARD_COUNT")) : 1;
  return count;
}
Stream* stream_of(const void* handle) {
  static auto* plain = new std::map<int, Stream>;
  if (reinterpret_cast<uintptr_t>(handle) > 2) return static_cast<Stream*>(const_cast<void*>(handle));
  return &plain->try_emplace(current, Stream{current, 0}).first->second;
}

// ---------------------------------------------------------------- the ledger

void note(const char* kind, const char* place, const Stream* stream, const char* format, ...) {
  static FILE* const ledger = [] {
    const char* name = getenv("CARD_LEDGER");
    FILE* file = name ? fopen(name, "a") : nullptr;
    if (file) setvbuf(file, nullptr, _IOFBF, 1 << 20);
    return file;
  }();
  if (!ledger) return;
  Lock lock(guard);
  if (!kind) {
    fflush(ledger);
    return;
  }
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  fprintf(ledger, "%lld\t%s\t%s\t%d\t%d\t", now.tv_sec * 1000000000ll + now.tv_nsec, kind, place, stream ? stream->device : current,
          stream ? stream->number : -1);
  va_list more;
  va_start(more, format);
  vfprintf(ledger, format, more);
  va_end(more);
  fputc('\n', ledger);
}

cudaError_t failed(cudaError_t error) { return latest = error; }

// ---------------------------------------------------------------- what a capture forbids

cudaError_t breaks(const char* call, cudaError_t error) {
  note("fault", "captured", nullptr, "%s during a capture", call);
  capturing->broken = cudaErrorStreamCaptureInvalidated;
  return failed(error);
}

// Calls that may wait for other work of the device: no thread makes them during a capture, unless it said that it knows (relaxed mode)
cudaError_t unsafe(const char* call) {
  Lock lock(guard);
  if (!capturing || mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  return breaks(call, cudaErrorStreamCaptureUnsupported);
}

// Waiting for a stream that is being captured; for any other it is an unsafe call
cudaError_t waiting(const char* call, const Stream* stream) {
  Lock lock(guard);
  if (stream && stream->capture) return breaks(call, cudaErrorStreamCaptureUnsupported);
  return unsafe(call);
}

// An operation that is put into a stream; says where it went
const char* put(Stream* stream) {
  stream->put++;
  if (!stream->capture) {
    if (!capturing || mode == cudaStreamCaptureModeRelaxed) return "eager";
    note("fault", "outside", stream, "an operation that the capture beside it misses");
    return "outside";
  }
  stream->work++;
  stream->capture->graph->nodes++;
  return "captured";
}

// ---------------------------------------------------------------- kernels

std::string readable(const std::string& name) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), free);
  std::string found = status == 0 && text ? text.get() : name;
  std::replace(found.begin(), found.end(), '\n', ' ');
  return found.substr(0, 400);
}

void launch(const void* function, dim3 grid, dim3 block, size_t shared, Stream* stream) {
  Lock lock(guard);
  auto found = names().find(function);
  std::string name = found == names().end() ? "unknown" : readable(found->second);
  note("kernel", put(stream), stream, "%s <<<%u,%u,%u x %u,%u,%u, %zu>>>", name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z,
       shared);
  bool empty = !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z;
  bool large = grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535 || size_t(block.x) * block.y * block.z > 1024 || block.z > 64;
  if (empty || large || shared > kShared) note("fault", "eager", stream, "no card launches this: %s", name.c_str());
}

struct Call {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Call> calls;

// ---------------------------------------------------------------- memory

const Block* block_of(const void* address) {
  auto next = blocks().upper_bound(reinterpret_cast<uintptr_t>(address));
  if (next == blocks().begin()) return nullptr;
  auto& [start, block] = *std::prev(next);
  return reinterpret_cast<uintptr_t>(address) < start + block.bytes ? &block : nullptr;
}

cudaError_t allocate(void** address, size_t bytes, int device) {
  if (auto error = unsafe(device < 0 ? "cudaHostAlloc" : "cudaMalloc")) return error;
  Lock lock(guard);
  if (device >= 0 && used[device] + bytes > kMemory - kTaken) return failed(cudaErrorMemoryAllocation);
  void* room = mmap(nullptr, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  blocks()[reinterpret_cast<uintptr_t>(room)] = {bytes, device};
  if (device >= 0) most[device] = std::max(most[device], used[device] += bytes);
  note("alloc", device < 0 ? "host" : "device", nullptr, "%zu", bytes);
  *address = room;
  return cudaSuccess;
}

cudaError_t release(void* address) {
  if (!address) return cudaSuccess;
  if (auto error = unsafe("cudaFree")) return error;
  Lock lock(guard);
  auto found = blocks().find(reinterpret_cast<uintptr_t>(address));
  if (found == blocks().end()) return failed(cudaErrorInvalidValue);
  auto [bytes, device] = found->second;
  if (device >= 0) used[device] -= bytes;
  munmap(address, bytes + 1);
  blocks().erase(found);
  note("free", device < 0 ? "host" : "device", nullptr, "%zu", bytes);
  return cudaSuccess;
}

void wait_for_ranks(const char* what);

cudaError_t move(void* to, const void* from, size_t bytes, Stream* stream, bool waits) {
  Lock lock(guard);
  const Block *target = block_of(to), *source = block_of(from);
  bool down = source && source->device >= 0, up = target && target->device >= 0;
  bool pageable = (up && !down && !source) || (down && !up && !target);
  if (waits)
    if (auto error = waiting("cudaMemcpy", stream)) return error;
  const char* place = put(stream);
  const char* way = up && down ? "device" : up ? "to-device" : down ? "to-host" : "host";
  note("copy", place, stream, "%s%s%s %zu", way, pageable ? " pageable" : "", waits ? " waits" : "", bytes);
  if (stream->capture) {
    if (pageable) note("fault", place, stream, "a copy of pageable memory is captured: its address may not live");
    return cudaSuccess;
  }
  if (down && !up) wait_for_ranks("copy");
  if (!(up && down)) memmove(to, from, bytes);
  return cudaSuccess;
}

// ---------------------------------------------------------------- other ranks

struct Ranks {
  int rank = 0, size = 1;
  volatile long* count[kMaxCards] = {};
  bool aborted = false;
} ranks;

void join_ranks(int rank, int size) {
  ranks.rank = rank, ranks.size = std::min(size, kMaxCards);
  const char* folder = getenv("CARD_WORLD");
  for (int other = 0; folder && other < ranks.size; other++) {
    std::string path = std::string(folder) + "/rank" + std::to_string(other);
    int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(long))) abort();
    ranks.count[other] = static_cast<long*>(mmap(nullptr, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
  }
}

// As a card waits for a collective: for ever, where a rank never comes
void wait_for_ranks(const char* what) {
  if (!ranks.count[0]) return;
  long mine = *ranks.count[ranks.rank];
  for (int other = 0; other < ranks.size; other++)
    for (bool told = false; *ranks.count[other] < mine && !ranks.aborted; usleep(200))
      if (!told && (told = true)) note("wait", "eager", nullptr, "%s for rank %d", what, other), note(nullptr, "", nullptr, "");
}

ncclResult_t collective(const char* name, size_t count, ncclDataType_t type, const void* buffer, cudaStream_t handle) {
  Lock lock(guard);
  Stream* stream = stream_of(handle);
  note("collective", put(stream), stream, "%s %zu type %d", name, count, type);
  if (!block_of(buffer) || block_of(buffer)->device < 0) note("fault", "eager", stream, "NCCL got memory of the host: %s", name);
  if (ranks.count[0]) ++*ranks.count[ranks.rank];
  return ncclSuccess;
}

// ---------------------------------------------------------------- products

struct Matrix {
  uint64_t rows, columns;
  int batch;
};
struct Product {
  int epilogue;
};
thread_local cudaStream_t blas_stream;
cublasMath_t blas_math = CUBLAS_DEFAULT_MATH;
cublasPointerMode_t blas_pointers = CUBLAS_POINTER_MODE_HOST;

cublasStatus_t multiply(const char* how, long m, long n, long k, long batch, cudaDataType type, Stream* stream, int epilogue = 0) {
  Lock lock(guard);
  const char* kind = type == CUDA_R_16BF ? "bf16" : type == CUDA_R_32F ? "fp32" : type == CUDA_R_16F ? "fp16" : "other";
  note("product", put(stream), stream, "%s %s %ld x %ld x %ld batch %ld epilogue %d", how, kind, m, n, k, batch, epilogue);
  return CUBLAS_STATUS_SUCCESS;
}

int attribute(int which) {
  static const std::map<int, int> known = {
      {cudaDevAttrMaxThreadsPerBlock, 1024}, {cudaDevAttrMaxBlockDimX, 1024}, {cudaDevAttrMaxBlockDimY, 1024}, {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 2147483647}, {cudaDevAttrMaxGridDimY, 65535}, {cudaDevAttrMaxGridDimZ, 65535}, {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152}, {cudaDevAttrMaxSharedMemoryPerBlockOptin, kShared},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, kShared + 1024}, {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
      {cudaDevAttrTotalConstantMemory, 65536}, {cudaDevAttrMaxRegistersPerBlock, 65536}, {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrMultiProcessorCount, 132}, {cudaDevAttrMaxThreadsPerMultiProcessor, 2048}, {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
      {cudaDevAttrComputeCapabilityMajor, 9}, {cudaDevAttrComputeCapabilityMinor, 0}, {cudaDevAttrL2CacheSize, 62914560},
      {cudaDevAttrClockRate, 1980000}, {cudaDevAttrMemoryClockRate, 3201000}, {cudaDevAttrGlobalMemoryBusWidth, 6144},
      {cudaDevAttrUnifiedAddressing, 1}, {cudaDevAttrManagedMemory, 1}, {cudaDevAttrConcurrentKernels, 1}, {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrStreamPrioritiesSupported, 1}, {cudaDevAttrHostRegisterSupported, 1}, {cudaDevAttrMemoryPoolsSupported, 1},
  };
  auto found = known.find(which);
  return found == known.end() ? 0 : found->second;
}

template <class Handle, class Thing>
Handle handle(Thing* thing) {
  return reinterpret_cast<Handle>(thing);
}

}  // namespace

// ---------------------------------------------------------------- calls that only have to succeed

#define SUCCEEDS(name) asm(".globl " #name "\n.type " #name ", @function\n.set " #name ", card_succeeds\n")
extern "C" __attribute__((used)) long card_succeeds() { return 0; }
SUCCEEDS(__cudaRegisterFatBinaryEnd); SUCCEEDS(__cudaUnregisterFatBinary); SUCCEEDS(__cudaRegisterVar); SUCCEEDS(__cudaRegisterManagedVar);
SUCCEEDS(cudaDeviceEnablePeerAccess); SUCCEEDS(cudaDeviceSetLimit); SUCCEEDS(cudaProfilerStart); SUCCEEDS(cudaProfilerStop);
SUCCEEDS(cudaMemcpyToSymbol); SUCCEEDS(cudaHostRegister); SUCCEEDS(cudaHostUnregister); SUCCEEDS(cudaMemPoolSetAttribute);
SUCCEEDS(cudaMemPoolSetAccess); SUCCEEDS(cudaMemPoolTrimTo); SUCCEEDS(cudaStreamDestroy); SUCCEEDS(cudaGraphDebugDotPrint);
SUCCEEDS(cudaGraphDestroy); SUCCEEDS(cudaGraphExecDestroy); SUCCEEDS(cudaFuncSetAttribute); SUCCEEDS(cudaFuncSetCacheConfig);
SUCCEEDS(cudaGraphUpload); SUCCEEDS(cuInit); SUCCEEDS(cuCtxSetCurrent); SUCCEEDS(cuCtxSetLimit); SUCCEEDS(cuModuleUnload);
SUCCEEDS(cuFuncSetAttribute); SUCCEEDS(cuFuncSetCacheConfig); SUCCEEDS(cuTensorMapEncodeTiled); SUCCEEDS(cuStreamWriteValue32_v2);
SUCCEEDS(cublasDestroy_v2); SUCCEEDS(cublasSetWorkspace_v2); SUCCEEDS(cublasLtMatmulPreferenceDestroy);
SUCCEEDS(cublasLtMatmulPreferenceSetAttribute); SUCCEEDS(ncclCommFinalize); SUCCEEDS(ncclCommDestroy); SUCCEEDS(ncclGroupStart);
SUCCEEDS(ncclGroupEnd); SUCCEEDS(ncclRedOpDestroy); SUCCEEDS(ncclCommDeregister); SUCCEEDS(ncclCommInitAll);

extern "C" {

// ---------------------------------------------------------------- for tests

void card_mark(const char* text) { note("mark", "", nullptr, "%s", text); }
void card_flush() { note(nullptr, "", nullptr, ""); }
size_t card_most(int device) { return most[device]; }
void card_reset_most(int device) { most[device] = used[device]; }

// ---------------------------------------------------------------- runtime: functions and launches

void** __cudaRegisterFatBinary(void*) {
  static void* room[8];
  return room;
}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  Lock lock(guard);
  names()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st* stream) {
  calls.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (calls.empty()) return cudaErrorInvalidConfiguration;
  Call call = calls.back();
  calls.pop_back();
  *grid = call.grid, *block = call.block, *shared = call.shared;
  *static_cast<cudaStream_t*>(stream) = call.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = handle<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t shared, cudaStream_t stream) {
  launch(kernel, grid, block, shared, stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared, cudaStream_t stream) {
  launch(function, grid, block, shared, stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* function, void**) {
  launch(function, how->gridDim, how->blockDim, how->dynamicSmemBytes, stream_of(how->stream));
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t work, void* data) {
  Stream* stream = stream_of(handle);
  note("host", put(stream), stream, "function");
  if (!stream->capture) work(data);
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t work, void* data, unsigned) {
  if (auto error = waiting("cudaStreamAddCallback", stream_of(stream))) return error;
  work(stream, cudaSuccess, data);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  memset(found, 0, sizeof *found);
  found->maxThreadsPerBlock = 1024, found->numRegs = 32, found->ptxVersion = found->binaryVersion = 90;
  found->maxDynamicSharedSizeBytes = kShared;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const void*, int, size_t) { return *count = 2, cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* count, const void*, int, size_t, unsigned) {
  return *count = 2, cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* found) {
  *function = dlsym(RTLD_DEFAULT, name);
  if (found) *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(name, function, 13000, flags, found);
}
cudaError_t cudaGetSymbolAddress(void** address, const void*) {
  static char room[1 << 16];
  return *address = room, cudaSuccess;
}

// ---------------------------------------------------------------- runtime: cards

cudaError_t cudaGetDeviceCount(int* count) { return *count = cards(), cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = current, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= cards()) return failed(cudaErrorInvalidDevice);
  return current = device, cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) { return *value = attribute(which), cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* all, int device) {
  memset(all, 0, sizeof *all);
  strcpy(all->name, "NVIDIA H200 (pretended)");
  all->totalGlobalMem = kMemory, all->major = 9, all->multiProcessorCount = 132, all->warpSize = 32, all->l2CacheSize = 62914560;
  all->maxThreadsPerBlock = all->maxThreadsDim[0] = all->maxThreadsDim[1] = 1024, all->maxThreadsDim[2] = 64;
  all->maxGridSize[0] = 2147483647, all->maxGridSize[1] = all->maxGridSize[2] = 65535;
  all->maxThreadsPerMultiProcessor = 2048, all->maxBlocksPerMultiProcessor = 32, all->regsPerBlock = all->regsPerMultiprocessor = 65536;
  all->sharedMemPerBlock = 49152, all->sharedMemPerBlockOptin = kShared, all->sharedMemPerMultiprocessor = kShared + 1024;
  all->reservedSharedMemPerBlock = 1024, all->totalConstMem = 65536, all->memoryBusWidth = 6144, all->pciBusID = device + 1;
  all->unifiedAddressing = all->concurrentKernels = all->managedMemory = all->memoryPoolsSupported = all->cooperativeLaunch = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 1, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  snprintf(text, length, "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, cudaSuccess; }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) { return *pool = handle<cudaMemPool_t>(&guard), cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  note("wait", "eager", nullptr, "device");
  if (auto error = unsafe("cudaDeviceSynchronize")) return error;
  wait_for_ranks("device");
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  cudaError_t error = latest;
  return latest = cudaSuccess, error;
}
cudaError_t cudaPeekAtLastError() { return latest; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfThePretendedCard";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "an error of the pretended card";
  }
}

// ---------------------------------------------------------------- runtime: memory

cudaError_t cudaMalloc(void** address, size_t bytes) { return allocate(address, bytes, current); }
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t) { return allocate(address, bytes, current); }
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) { return allocate(address, bytes, -1); }
cudaError_t cudaMallocHost(void** address, size_t bytes) { return allocate(address, bytes, -1); }
cudaError_t cudaFree(void* address) { return release(address); }
cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return release(address); }
cudaError_t cudaFreeHost(void* address) { return release(address); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *total = kMemory, *free = kMemory - kTaken - used[current], cudaSuccess; }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
  Lock lock(guard);
  const Block* block = block_of(address);
  memset(found, 0, sizeof *found);
  found->type = !block ? cudaMemoryTypeUnregistered : block->device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  found->device = block ? std::max(block->device, 0) : 0;
  found->devicePointer = found->hostPointer = const_cast<void*>(address);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) { return move(to, from, bytes, stream_of(nullptr), true); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return move(to, from, bytes, stream_of(stream), false);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return move(to, from, bytes, stream_of(stream), false);
}
cudaError_t cudaMemsetAsync(void*, int, size_t bytes, cudaStream_t handle) {
  Lock lock(guard);
  Stream* stream = stream_of(handle);
  note("fill", put(stream), stream, "%zu", bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* address, int value, size_t bytes) { return cudaMemsetAsync(address, value, bytes, nullptr); }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) { return memset(value, 0, 8), cudaSuccess; }
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return failed(cudaErrorNotSupported); }

// ---------------------------------------------------------------- runtime: streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned, int) {
  Lock lock(guard);
  *made = handle<cudaStream_t>(new Stream{current, ++streams_made});
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) { return cudaStreamCreateWithPriority(made, flags, 0); }
cudaError_t cudaStreamCreate(cudaStream_t* made) { return cudaStreamCreateWithPriority(made, 0, 0); }
cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) { return *priority = 0, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Stream* stream = stream_of(handle);
  note("wait", "eager", stream, "stream");
  if (auto error = waiting("cudaStreamSynchronize", stream)) return error;
  stream->passed = stream->put;
  wait_for_ranks("stream");
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  note("query", "eager", stream_of(handle), "stream");
  return waiting("cudaStreamQuery", stream_of(handle));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t which, unsigned) {
  Lock lock(guard);
  auto* event = reinterpret_cast<Event*>(which);
  Stream* stream = stream_of(handle);
  if (event->capture && event->capture == capturing) {
    if (!stream->capture) {
      stream->capture = capturing, stream->work = stream->joined = 0;
      capturing->streams.push_back(stream);
      note("capture", "captured", stream, "joined");
    }
    if (event->stream != stream) event->stream->joined = std::max(event->stream->joined, event->work);
  } else if (stream->capture && event->stream) {
    return breaks("waiting for an event from outside", cudaErrorStreamCaptureIsolation);
  }
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) { return *made = handle<cudaEvent_t>(new Event), cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t* made) { return cudaEventCreateWithFlags(made, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete reinterpret_cast<Event*>(event), cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t which, cudaStream_t handle, unsigned) {
  Lock lock(guard);
  Stream* stream = stream_of(handle);
  *reinterpret_cast<Event*>(which) = {stream, stream->capture, stream->work, stream->put};
  note("record", stream->capture ? "captured" : "eager", stream, "event");
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }
cudaError_t cudaEventQuery(cudaEvent_t event) {
  note("query", "eager", reinterpret_cast<Event*>(event)->stream, "event");
  return unsafe("cudaEventQuery");
}
cudaError_t cudaEventSynchronize(cudaEvent_t which) {
  auto* event = reinterpret_cast<Event*>(which);
  bool passed = !event->stream || event->put <= event->stream->passed;  // the host waited for what comes after it
  note(passed ? "query" : "wait", "eager", event->stream, passed ? "event that has passed" : "event");
  if (auto error = unsafe("cudaEventSynchronize")) return error;
  wait_for_ranks("event");
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) { return *milliseconds = 0.1f, cudaSuccess; }

// ---------------------------------------------------------------- runtime: captures and graphs

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* wanted) { return std::swap(mode, *wanted), cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  Lock lock(guard);
  Stream* stream = stream_of(handle);
  if (stream->number == 0 || capturing) return failed(cudaErrorStreamCaptureImplicit);
  capturing = stream->capture = new Capture{new Graph{++graphs_made}, stream, {stream}};
  stream->work = stream->joined = 0;
  note("capture", "captured", stream, "begin %d", graphs_made);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* made) {
  Lock lock(guard);
  Capture* capture = stream_of(handle)->capture;
  if (!capture) return failed(cudaErrorIllegalState);
  for (Stream* stream : capture->streams) {
    if (stream != capture->origin && stream->joined < stream->work && !capture->broken) {
      note("fault", "captured", stream, "work that no other stream of the capture waits for");
      capture->broken = cudaErrorStreamCaptureUnjoined;
    }
    stream->capture = nullptr;
  }
  capturing = nullptr;
  static const bool refuses = getenv("CARD_REFUSES") && !strcmp(getenv("CARD_REFUSES"), "capture");
  if (refuses) capture->broken = cudaErrorStreamCaptureInvalidated;
  note("graph", capture->broken ? "broken" : "captured", capture->origin, "%d nodes %ld", capture->graph->number, capture->graph->nodes);
  *made = capture->broken ? nullptr : reinterpret_cast<cudaGraph_t>(capture->graph);
  return failed(capture->broken);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  Lock lock(guard);
  Capture* capture = stream_of(handle)->capture;
  *status = !capture          ? cudaStreamCaptureStatusNone
            : capture->broken ? cudaStreamCaptureStatusInvalidated
                              : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* number, cudaGraph_t* graph,
                                     const cudaGraphNode_t** after, const cudaGraphEdgeData** edges, size_t* count) {
  Lock lock(guard);
  cudaStreamIsCapturing(handle, status);
  Capture* capture = stream_of(handle)->capture;
  if (number) *number = capture ? capture->graph->number : 0;
  if (graph) *graph = capture ? reinterpret_cast<cudaGraph_t>(capture->graph) : nullptr;
  if (after) *after = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  return *count = reinterpret_cast<Graph*>(graph)->nodes, cudaSuccess;
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t* count) {
  return *count = 0, cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return *made = reinterpret_cast<cudaGraphExec_t>(graph), cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  return cudaGraphInstantiate(made, graph, 0);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  auto* recorded = reinterpret_cast<Graph*>(graph);
  note("replay", put(stream_of(stream)), stream_of(stream), "%d nodes %ld", recorded->number, recorded->nodes);
  return cudaSuccess;
}

// ---------------------------------------------------------------- driver

CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int number) { return *device = number, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* count) { return *count = cards(), CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int length, CUdevice) { return snprintf(name, length, "NVIDIA H200 (pretended)"), CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) { return *value = attribute(which), CUDA_SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) { return *bytes = kMemory, CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) { return *context = handle<CUcontext>(&guard), CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = current, CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t* value, CUlimit) { return *value = 1 << 20, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return cuCtxGetCurrent(context); }
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) { return *flags = 0, *active = 1, CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "an error of the pretended driver", CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** text) { return *text = "CUDA_ERROR_PRETENDED", CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr address) {
  Lock lock(guard);
  const Block* block = block_of(reinterpret_cast<void*>(address));
  if (which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
    if (!block || block->device < 0) return CUDA_ERROR_INVALID_VALUE;  // as for a tensor of the CPU that is given to a kernel
    *static_cast<CUdeviceptr*>(value) = address;
  } else if (which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    *static_cast<int*>(value) = block ? block->device : 0;
  } else {
    *static_cast<uint64_t*>(value) = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void*) { return *module = handle<CUmodule>(new char), CUDA_SUCCESS; }
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) { return cuModuleLoadData(module, image); }
CUresult cuModuleLoad(CUmodule* module, const char* path) {
  return access(path, R_OK) ? CUDA_ERROR_FILE_NOT_FOUND : cuModuleLoadData(module, nullptr);
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  Lock lock(guard);
  auto* key = new char;
  names()[key] = name;
  *function = handle<CUfunction>(key);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction) {
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : which == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int* count, CUfunction, const CUlaunchConfig*) { return *count = 1, CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, CUfunction, int, size_t) { return *count = 2, CUDA_SUCCESS; }
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        CUstream stream, void**, void**) {
  launch(function, dim3(gx, gy, gz), dim3(bx, by, bz), shared, stream_of(stream));
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* how, CUfunction function, void**, void**) {
  launch(function, dim3(how->gridDimX, how->gridDimY, how->gridDimZ), dim3(how->blockDimX, how->blockDimY, how->blockDimZ),
         how->sharedMemBytes, stream_of(how->hStream));
  return CUDA_SUCCESS;
}

// ---------------------------------------------------------------- cuBLAS

cublasStatus_t cublasCreate_v2(cublasHandle_t* made) { return *made = handle<cublasHandle_t>(new long[8]), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t stream) { return blas_stream = stream, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetStream_v2(cublasHandle_t, cudaStream_t* stream) { return *stream = blas_stream, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t wanted) { return blas_math = wanted, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* found) { return *found = blas_math, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t wanted) { return blas_pointers = wanted, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* found) { return *found = blas_pointers, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void*, const void*, cudaDataType type,
                            int, const void*, cudaDataType, int, const void*, void*, cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply("gemm", m, n, k, 1, type, stream_of(blas_stream));
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void*, const void*,
                                          cudaDataType type, int, long long, const void*, cudaDataType, int, long long, const void*, void*,
                                          cudaDataType, int, long long, int batch, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply("gemm", m, n, k, batch, type, stream_of(blas_stream));
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const float*, const float*, int,
                              const float*, int, const float*, float*, int) {
  return multiply(blas_math == CUBLAS_TF32_TENSOR_OP_MATH ? "gemm tf32" : "gemm", m, n, k, 1, CUDA_R_32F, stream_of(blas_stream));
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const float*, const float*,
                                         int, long long, const float*, int, long long, const float*, float*, int, long long, int batch) {
  return multiply("gemm", m, n, k, batch, CUDA_R_32F, stream_of(blas_stream));
}
cublasStatus_t cublasSgemv_v2(cublasHandle_t, cublasOperation_t, int m, int n, const float*, const float*, int, const float*, int, const float*,
                              float*, int) {
  return multiply("gemv", m, n, 1, 1, CUDA_R_32F, stream_of(blas_stream));
}
cublasStatus_t cublasSdot_v2(cublasHandle_t, int n, const float*, int, const float*, int, float* result) {
  if (!block_of(result)) *result = 0;
  return multiply("dot", n, 1, 1, 1, CUDA_R_32F, stream_of(blas_stream));
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType, uint64_t rows, uint64_t columns, int64_t) {
  return *made = handle<cublasLtMatrixLayout_t>(new Matrix{rows, columns, 1}), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const void* value, size_t) {
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) reinterpret_cast<Matrix*>(layout)->batch = *static_cast<const int*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete reinterpret_cast<Matrix*>(layout), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return *made = handle<cublasLtMatmulDesc_t>(new Product{}), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t which, const void* value, size_t) {
  if (which == CUBLASLT_MATMUL_DESC_EPILOGUE) reinterpret_cast<Product*>(product)->epilogue = *static_cast<const int*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return delete reinterpret_cast<Product*>(product), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = handle<cublasLtMatmulPreference_t>(new long[8]), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  memset(results, 0, sizeof *results);
  return *count = 1, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void*, const void*, cublasLtMatrixLayout_t left, const void*,
                              cublasLtMatrixLayout_t, const void*, const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t result,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  auto *out = reinterpret_cast<Matrix*>(result), *from = reinterpret_cast<Matrix*>(left);
  uint64_t inner = from->rows == out->rows ? from->columns : from->rows;
  return multiply("lt", out->rows, out->columns, inner, out->batch, CUDA_R_16BF, stream_of(stream),
                  reinterpret_cast<Product*>(product)->epilogue);
}

// ---------------------------------------------------------------- NCCL

ncclResult_t ncclGetVersion(int* version) { return *version = 22809, ncclSuccess; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return memset(id, 1, sizeof *id), ncclSuccess; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId, int rank, ncclConfig_t*) {
  Lock lock(guard);
  join_ranks(rank, size);
  note("collective", "eager", nullptr, "begin %d of %d", rank, size);
  return *made = handle<ncclComm_t>(&ranks), ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* made, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(made, size, id, rank, nullptr);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* made, int size, int rank, int, ncclUniqueId* id, ncclConfig_t*) {
  return ncclCommInitRankConfig(made, size, *id, rank, nullptr);
}
ncclResult_t ncclCommSplit(ncclComm_t group, int, int, ncclComm_t* made, ncclConfig_t*) { return *made = group, ncclSuccess; }
ncclResult_t ncclCommShrink(ncclComm_t group, int*, int, ncclComm_t* made, ncclConfig_t*, int) { return *made = group, ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t) { return ranks.aborted = true, ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) { return *error = ncclSuccess, ncclSuccess; }
ncclResult_t ncclCommCount(const ncclComm_t, int* count) { return *count = ranks.size, ncclSuccess; }
ncclResult_t ncclCommUserRank(const ncclComm_t, int* rank) { return *rank = ranks.rank, ncclSuccess; }
ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void** made) { return *made = nullptr, ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "an error of the pretended NCCL"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclAllReduce(const void* from, void*, size_t n, ncclDataType_t type, ncclRedOp_t, ncclComm_t, cudaStream_t stream) {
  return collective("all-reduce", n, type, from, stream);
}
ncclResult_t ncclAllGather(const void* from, void*, size_t n, ncclDataType_t type, ncclComm_t, cudaStream_t stream) {
  return collective("all-gather", n, type, from, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void*, size_t n, ncclDataType_t type, ncclRedOp_t, ncclComm_t, cudaStream_t stream) {
  return collective("reduce-scatter", n, type, from, stream);
}
ncclResult_t ncclBroadcast(const void* from, void*, size_t n, ncclDataType_t type, int, ncclComm_t, cudaStream_t stream) {
  return collective("broadcast", n, type, from, stream);
}
ncclResult_t ncclBcast(void* buffer, size_t n, ncclDataType_t type, int, ncclComm_t, cudaStream_t stream) {
  return collective("broadcast", n, type, buffer, stream);
}
ncclResult_t ncclReduce(const void* from, void*, size_t n, ncclDataType_t type, ncclRedOp_t, int, ncclComm_t, cudaStream_t stream) {
  return collective("reduce", n, type, from, stream);
}
ncclResult_t ncclSend(const void* from, size_t n, ncclDataType_t type, int, ncclComm_t, cudaStream_t stream) {
  return collective("send", n, type, from, stream);
}
ncclResult_t ncclRecv(void* buffer, size_t n, ncclDataType_t type, int, ncclComm_t, cudaStream_t stream) {
  return collective("receive", n, type, buffer, stream);
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* made, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) {
  return *made = ncclSum, ncclSuccess;
}
}

__attribute__((destructor)) static void card_ends() { note(nullptr, "", nullptr, ""); }
