# Turns the CUDA language on where there is a toolkit, unless told not to, and
# says what it chose. Sets ATTND_WITH_CUDA.
set(ATTND_WITH_CUDA OFF)
if(NOT ATTND_CUDA)
  message(STATUS "CUDA: off, as asked for (ATTND_CUDA=${ATTND_CUDA})")
  return()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(NOT ATTND_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "ATTND_CUDA=${ATTND_CUDA}, but no CUDA compiler was found; CUDACXX says where it is")
  endif()
  message(STATUS "CUDA: off, no toolkit was found; attnd computes on the CPU only")
  return()
endif()

# Machine code for 8.x and 9.0, and PTX of 9.0 for all that comes after: the
# driver compiles that at the first start.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to compile for")
endif()
enable_language(CUDA)
# Told that a project needs CMake 3.25, the module of Debian 12's CMake marks
# CUDA::nvToolsExt as deprecated without asking whether there is one, which is an
# error with toolkits since 13.0: these have none.
set(ATTND_CMAKE_MINIMUM ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${ATTND_CMAKE_MINIMUM})
unset(ATTND_CMAKE_MINIMUM)
# Sanitizers look at what the host runs: what runs on a GPU is compiled as for a
# release, and ccache has it from there, whatever the folders of the two are.
if(ATTND_SANITIZE)
  set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "${CMAKE_CUDA_FLAGS_RELEASE}")
endif()
if(ATTND_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${ATTND_CCACHE})
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
# CMake 3.25 does not know it of nvcc yet.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(ATTND_WITH_CUDA ON)
message(STATUS "CUDA: on, ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
