#ifndef ATTND_KERNELS_DEVICE_RATES_H_
#define ATTND_KERNELS_DEVICE_RATES_H_

#include <cstdint>

namespace attnd {

// How fast a device is, about, for whoever must know what something takes
// before it is done. Seconds, and bytes or FLOPs in one. Such rates are those
// of large problems of 16-bit elements on a device that is busy for seconds, so
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
    // From what a launch waits for to its first tile, and what the host takes
    // to enqueue it.
    double launch_seconds = 0, enqueue_seconds = 0;
  };
  // One way of copying. A copy takes its bytes' time and a little, after which
  // the next one begins; and it has happened somewhat later than that.
  struct Link {
    double seconds = 0;  // later
    double bytes = 340e9;
    double copy_seconds = 0;     // that little
    double enqueue_seconds = 0;  // for the host to enqueue it
  };

  double processors = 1;  // that take tiles
  // `decode`: of few rows, which shares out a sequence's columns among all
  // processors.
  Kernel forward, backward, decode;
  // Where backward must give the same bits each time: what it takes in parts of
  // what it takes else; and how long it takes for one tile after another to add
  // to the same rows of dQ, in turns.
  double deterministic = 1, turn_seconds = 0;
  // Problems of a backward that have more than so many bytes of rows' sums
  // together run one after another.
  double shared_scratch = 1e30;
  // What f32 takes, in parts of what 16-bit elements take.
  double f32 = 1;
  double memory_bytes = 3.6e12;  // of the device's own memory, read or written
  double kernel_seconds = 0;     // of a sum or a merge, at least
  // The host: to begin with a plan and to find that it is over; and whatever a
  // step is, beside enqueueing it.
  double team_seconds = 0, step_seconds = 0;
  // From and to the host, and from another device. All ways may be used at once
  // on all devices.
  Link upload, download, pull;
  // Of the host's links' speed, what is left where rows of less than so many
  // bytes lie apart.
  double short_rows = 1;
  int64_t short_row_bytes = 0;
  // What a copy of tokens that lie apart takes more, whichever way.
  double apart_seconds = 0;
};

}  // namespace attnd

#endif  // ATTND_KERNELS_DEVICE_RATES_H_
