#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "server/region/options.h"

namespace attnd::server {
namespace {

using ::testing::StartsWith;

std::string Refusal(const std::function<void(RegionOptions&)>& change) {
  RegionOptions options;
  options.socket = "/run/attnd/region";
  options.memory_bytes = int64_t{1} << 30;
  change(options);
  const absl::Status status = options.Validate();
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(RegionOptions, DefaultsAreValidAndOff) {
  EXPECT_EQ(RegionOptions().Validate(), absl::OkStatus());
  EXPECT_FALSE(RegionOptions().enabled());
  EXPECT_EQ(RegionOptions().Descriptors(), 0);
  EXPECT_EQ(Refusal([](RegionOptions&) {}), "");
  // For GPUs' memory alone.
  EXPECT_EQ(Refusal([](auto& o) { o.memory_bytes = 0; }), "");
}

TEST(RegionOptions, NameTheFlagThatIsOutOfRange) {
  EXPECT_THAT(Refusal([](auto& o) { o.socket.assign(108, 'x'); }),
              StartsWith("--region_socket:"));
  EXPECT_THAT(Refusal([](auto& o) { o.socket = "@abstract"; }),
              StartsWith("--region_socket:"));
  EXPECT_THAT(Refusal([](auto& o) { o.socket_mode = 01777; }),
              StartsWith("--region_socket_mode:"));
  EXPECT_THAT(Refusal([](auto& o) { o.memory_bytes = -1; }),
              StartsWith("--region_memory:"));
  EXPECT_THAT(Refusal([](auto& o) { o.memory_bytes = (64 << 20) - 1; }),
              StartsWith("--region_memory:"));
  EXPECT_THAT(Refusal([](auto& o) { o.socket = ""; }),
              StartsWith("--region_memory: needs --region_socket"));
  EXPECT_THAT(Refusal([](auto& o) { o.slab_bytes = 1 << 20; }),
              StartsWith("--region_slab:"));
  EXPECT_THAT(Refusal([](auto& o) { o.slab_bytes = (2 << 20) + 4096; }),
              StartsWith("--region_slab:"));
  EXPECT_THAT(Refusal([](auto& o) { o.import_memory_bytes = -1; }),
              StartsWith("--region_import_memory:"));
  EXPECT_THAT(Refusal([](auto& o) { o.max_connections = 0; }),
              StartsWith("--max_region_connections:"));
  EXPECT_THAT(Refusal([](auto& o) { o.max_leases_per_user = 0; }),
              StartsWith("--max_regions_per_user:"));
  EXPECT_THAT(Refusal([](auto& o) { o.memory_per_user_bytes = -1; }),
              StartsWith("--region_memory_per_user:"));
  EXPECT_THAT(Refusal([](auto& o) { o.max_imports_per_user = 0; }),
              StartsWith("--max_region_imports_per_user:"));
  EXPECT_THAT(Refusal([](auto& o) { o.imports_per_second = 0; }),
              StartsWith("--region_imports_per_second:"));
}

TEST(RegionOptions, TakeADescriptorAConnectionAndASlab) {
  RegionOptions options;
  options.socket = "/run/attnd/region";
  const int64_t without = options.Descriptors();
  EXPECT_GT(without, options.max_connections);
  options.memory_bytes = 5 * options.slab_bytes;
  EXPECT_EQ(options.Descriptors(), without + 5);
}

}  // namespace
}  // namespace attnd::server
