# Sets ATTND_OTEL: whether OpenTelemetry's SDK is there, for spans of calls. No distribution
# that attnd is built on brings it in a form that fits, so it is optional: -DCMAKE_PREFIX_PATH
# tells where one was installed. Its shared libraries load gRPC's, of which the process would
# have two beside archives.
find_package(opentelemetry-cpp CONFIG QUIET)
set(ATTND_OTEL OFF)
if(opentelemetry-cpp_FOUND)
  get_target_property(attnd_otel_type opentelemetry-cpp::otlp_grpc_exporter TYPE)
  if(ATTND_ARCHIVES AND attnd_otel_type STREQUAL SHARED_LIBRARY)
    message(STATUS "OpenTelemetry ${opentelemetry-cpp_VERSION} is shared: not used without "
                   "-DATTND_ARCHIVES=OFF")
  else()
    set(ATTND_OTEL ON)
    message(STATUS "OpenTelemetry ${opentelemetry-cpp_VERSION}: spans by --otlp_endpoint")
  endif()
endif()
