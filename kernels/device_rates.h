#ifndef ATTND_KERNELS_DEVICE_RATES_H_
#define ATTND_KERNELS_DEVICE_RATES_H_

namespace attnd {

// How fast a device is, about, for whoever must know what something takes
// before it is done. Seconds, and bytes or FLOPs in one. Such rates are those of
// large problems of 16-bit elements on a device that is busy for seconds, so
// that a GPU is at its limit of power. The default is a device of which one
// knows nothing but what it does in the end.
struct DeviceRates {
  // Kernels of one kind. They take tiles, of some rows or of some columns, one
  // a processor at a time.
  struct Kernel {
    double flops = 1e12;  // of all processors together
    // What a pair of a row and a column takes beside its products, the softmax,
    // as FLOPs.
    double pair_flops = 0;
    double tile_seconds = 0;  // to begin and to end a tile
  };
  // One way of copying: so long before the first byte, and then so many bytes.
  struct Link {
    double seconds = 0;
    double bytes = 340e9;
  };

  double processors = 1;  // that take tiles
  Kernel forward, backward;
  // What backward takes where it must give the same bits each time, in parts of
  // what it takes else.
  double deterministic = 1;
  // What f32 takes, in parts of what 16-bit elements take.
  double f32 = 1;
  double launch_seconds = 0;  // from what a launch waits for to its first tile
  double memory_bytes = 3.6e12;  // of the device's own memory, read or written
  // The host: to begin with a plan and to find that it is over; and to enqueue
  // one step, and one copy of it.
  double team_seconds = 0, step_seconds = 0, copy_seconds = 0;
  // From and to the host, and from another device. All ways may be used at once
  // on all devices.
  Link upload, download, pull;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_DEVICE_RATES_H_
