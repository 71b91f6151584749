// What exchanges, codecs and memory cost, as numbers equal on all ranks; the algorithms' cost functions
// (src/collective/algorithms.hpp) make from them what a call would take. Seconds everywhere. Only + - * / and
// comparisons, so that equal inputs give equal choices on every machine.
#pragma once
#include <cstdint>
#include <vector>

namespace crimp {

// Seconds by bytes: linear between points, beyond the last with the slope of the last two.
class Curve {
 public:
  void add(double bytes, double s) { points_.push_back({bytes, s}); }  // in rising order of bytes
  double at(double bytes) const;
  bool empty() const { return points_.empty(); }

  struct Point {
    double bytes, s;
  };
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
};

// Exchanges among `ranks` ranks, one after another.
struct NetworkModel {
  int ranks = 1;
  Curve allgather;  // by the bytes that a rank receives from others
  Curve alltoall;   // likewise
  Curve plain;      // MPI_Allreduce, by the bytes of its buffer
  // Every rank sends one other a message and has one from a third, by the bytes of one; empty: such steps are not
  // considered (collective/relay.hpp).
  Curve step;
  // The alpha-beta model: every message costs `latency_s`, every byte of a rank's link 1 / bytes_per_s. allgather:
  // recursive doubling; alltoall: one message per peer; step: one message; plain: the cheaper of recursive doubling and
  // reduce-scatter with allgather, whose additions run at add_bytes_per_s.
  static NetworkModel of(int ranks, double latency_s, double bytes_per_s, double add_bytes_per_s);
};

// Per element. decode_s: of decoding one payload where nothing is added to yet; add_s: of every further one, which
// finds the sum in cache; 0: as decode_s.
struct CodecCost {
  double encode_s = 0, decode_s = 0, payload_bytes = 4;
  double scan_s = 0;  // looking for NaN and values out of range, before anything is sent
  double add_s = 0;
  // Of an encoding or a decoding, whatever it holds: tables, launches, waiting. 0: values lie in host memory.
  double launch_s = 0;
  double sum_s(double payloads) const { return decode_s + (payloads - 1) * (add_s > 0 ? add_s : decode_s); }
};

// Per byte of a rank's buffer: copying it to the node's memory, adding its share of all ranks', copying the sum back.
struct NodeModel {
  int ranks = 1;  // on this node
  double byte_s = 0, barrier_s = 0;
};

struct CostQuery {
  const NetworkModel& network;  // of the ranks that exchange payloads
  CodecCost codec;
  std::uint64_t count, chunk;
  int radix = 1;                  // of relayed exchanges; 1: none is (ChoiceQuery)
  double share = 1;               // of the elements, what the rank receives that receives most
  std::uint64_t frame_bytes = 0;  // of a rank, where one exchange carries the call
  double elements() const { return static_cast<double>(count); }
  double chunks() const { return static_cast<double>(count == 0 ? 1 : (count + chunk - 1) / chunk); }
  double per_chunk() const { return elements() / chunks(); }
};

// `chunks` chunks, each with so many seconds of computing and of exchanges; those of neighbours overlap.
double pipelined(double chunks, double computing, double wire);

}  // namespace crimp
