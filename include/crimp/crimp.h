/* Crimp's C interface, for programs that link Crimp (-lcrimp ahead of -lmpi). Unmodified programs need none of it.
 *
 * All functions return an MPI error code, MPI_SUCCESS (0) on success. Failures of a collective are raised through the
 * communicator's error handler first, as MPI does. Thread rules are those of MPI_Allreduce: calls on one communicator
 * are ordered. */
#ifndef CRIMP_H
#define CRIMP_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CRIMP_API __attribute__((visibility("default")))

typedef enum { CRIMP_FLOAT32 = 1, CRIMP_FLOAT64 = 2, CRIMP_FLOAT16 = 3, CRIMP_BFLOAT16 = 4 } crimp_dtype;

/* A tensor inside a buffer. Segments follow each other without gaps; their counts (in elements) add up to the call's
 * count. The name identifies the tensor on the communicator: its error-feedback residual is kept under it, however
 * tensors are merged from call to call. Names and counts are equal on all ranks; a name stands in a call once. Name and
 * array stay the caller's. */
typedef struct {
  const char* name;
  uint64_t count;
} crimp_segment;

/* Bad arguments (layout_invalid, argument_invalid) are an error on the rank that gave them; ranks whose arguments are
 * good wait for it, as in MPI's own calls.
 *
 * Sums `count` elements over the ranks of `comm`, like MPI_Allreduce with MPI_SUM, compressed as the CRIMP_* settings
 * say; what is not eligible (fewer than CRIMP_MIN_COUNT elements, one rank, no codec chosen) is summed exactly by MPI.
 * sendbuf may be MPI_IN_PLACE; NULL is an error unless count is 0. Buffers are in host memory or in that of an NVIDIA
 * GPU (docs/gpu.md). `count` may exceed INT_MAX. segments may be NULL (segment_count 0): then the call counts as
 * unnamed. */
CRIMP_API int crimp_allreduce(const void* sendbuf, void* recvbuf, uint64_t count, crimp_dtype dtype, MPI_Comm comm,
                              const crimp_segment* segments, size_t segment_count);

/* Likewise, like MPI_Reduce_scatter_block with MPI_SUM: every rank gives `recvcount` elements for each rank and
 * receives the sums of its own `recvcount`, as sharded optimizers (ZeRO, FSDP) want it. The segments tile what a rank
 * gives, and a tensor may reach over the borders of shares: name padding, too. A tensor has the same residual in this
 * call and in crimp_allreduce. Tensors that rules sum exactly are summed by MPI_Allreduce, all together; a call with a
 * tensor whose codec wants it whole (powersgd) is summed exactly as a whole. With MPI_IN_PLACE a rank gives recvbuf,
 * and the sums come to its beginning. */
CRIMP_API int crimp_reduce_scatter_block(const void* sendbuf, void* recvbuf, uint64_t recvcount, crimp_dtype dtype,
                                         MPI_Comm comm, const crimp_segment* segments, size_t segment_count);

/* The MPI datatype and the summing operation of `dtype`, to use with MPI_Allreduce: MPI_FLOAT and MPI_DOUBLE with
 * MPI_SUM, and Crimp's own pairs for CRIMP_FLOAT16 and CRIMP_BFLOAT16 (float addition, rounded once per hop where MPI
 * sums them). Not to be freed. After MPI_Init. */
CRIMP_API int crimp_datatype(crimp_dtype dtype, MPI_Datatype* type, MPI_Op* sum);

/* Makes later calls on `comm` take this algorithm, as CRIMP_ALGORITHM does for all communicators: "allgather",
 * "two_shot", ... or "auto". Collective: every rank of `comm` gives the same name between the same calls (else
 * call_differs on all). An unknown name is an error that lists the legal ones. */
CRIMP_API int crimp_set_algorithm(MPI_Comm comm, const char* name);

/* From now on tensors of `comm` whose names match the shell pattern have this codec, ahead of CRIMP_RULES and
 * CRIMP_CODEC and of what was said before: a text as in CRIMP_CODEC ("topk:ratio=0.01"), "none" (summed exactly), or
 * NULL: what the settings say. Names are those of crimp_allreduce and Horovod's; calls that name no tensors keep their
 * codec. Without a CRIMP_CODEC this reaches calls of crimp_allreduce only. A tensor's memory stays where the new
 * codec's is of the same kind (residual, momentum, average), and waits while the tensor has a codec without one or is
 * summed exactly; with another kind it begins from zeros.
 * Collective: every rank of `comm` gives the same texts between the same calls. Where they differ all ranks get an
 * error (call_differs) that shows two of them; an unknown codec or parameter is codec_unknown, no pattern
 * argument_invalid. After an error nothing has changed. */
CRIMP_API int crimp_set_codec(MPI_Comm comm, const char* pattern, const char* spec);

/* The learning rate that the program will multiply the results of later calls on `comm` by. Off until called. Error
 * feedback holds back parts of gradients; when the rate changes they are multiplied by the old rate over the new one
 * before they are sent, so that they weigh what they would have weighed in their own step, as in EF-SignSGD's paper (p
 * = rate * gradient + residual). Of the memory momentum the accumulated part is, the momentum is not. Call it before
 * the calls of each step in which the rate changes, or of every step. Collective, with the same value on all ranks
 * (else call_differs on all); from 1e-12 to 1e12 (else argument_invalid). */
CRIMP_API int crimp_set_learning_rate(MPI_Comm comm, double rate);

/* What a call on `comm` that brings this rank's named tensors nothing but zeros means. 0, as it is until this is
 * called: they ask for what error feedback holds back, and get it. 1: they were not used, and it waits for their next
 * values, as it does in any case where other tensors of the call have values: for trainers that throw away the sums of
 * what no rank has used in a step (DDP with find_unused_parameters). Local, but to be given on all ranks; the first
 * function on a communicator is collective. Other values: argument_invalid. */
CRIMP_API int crimp_set_idle_waits(MPI_Comm comm, int waits);

/* Says that the tensor `name` of crimp_allreduce (or Horovod's tensor of that name) is a matrix of rows x cols
 * elements, row by row, which the codec powersgd wants to know: cols is the product of all extents but the first.
 * Otherwise Crimp finds them in the tensor's first call; a rule with cols= says them too. Best before the tensor's
 * first call on `comm`. They say nothing of a tensor of that name with another number of elements. Collective: every
 * rank of `comm` gives the same between the same calls (else call_differs on all). */
CRIMP_API int crimp_set_extents(MPI_Comm comm, const char* name, uint64_t rows, uint64_t cols);

/* Saves and loads what error feedback and momentum keep of the tensors of `comm` that have names (crimp_allreduce's and
 * Horovod's), PowerSGD's factors, and the count of calls that random numbers depend on: with the program's own
 * checkpoint this is all that a training needs to go on as if it had not been interrupted. docs/checkpoint.md has the
 * rules, src/collective/STATE_FORMAT.md the files.
 *
 * Collective over `comm`, between two calls on it. `directory` is a directory of its own for each communicator; it is
 * made where it is missing (its parent is not), and may be another one on every host. Every rank writes a file of its
 * own, complete or not at all; what was saved there before is removed when all ranks have done so. Otherwise nobody's
 * changes: one warning, and all ranks return an error of class MPI_ERR_IO. It is NOT raised through the error handler,
 * because a full disk should not end a training.
 *
 * Of tensors whose names are longer than 65535 bytes nothing is saved, which is one warning and no error.
 *
 * crimp_load takes what the newest complete crimp_save into that directory has left, of as many ranks as there were,
 * in place of what is kept; tensors find theirs when they come. *tensors (unless NULL) is how many there are on this
 * rank. Where there is nothing, or a rank cannot read its part, nothing changes on any rank, and all return
 * MPI_ERR_NO_SUCH_FILE, not raised either. With another number of ranks what is owed to the sum over the ranks stays
 * the same. On communicators whose calls pass through there is nothing to save or load: MPI_SUCCESS, no files; in a
 * callback of MPI_Finalize what was kept is gone: MPI_ERR_IO and MPI_ERR_NO_SUCH_FILE. */
CRIMP_API int crimp_save(MPI_Comm comm, const char* directory);
CRIMP_API int crimp_load(MPI_Comm comm, const char* directory, uint64_t* tensors);

/* Frees what Crimp keeps of the blocking calls on `comm`, residuals among it, as MPI_Comm_free does, for programs that
 * make no more of them but cannot free a communicator together. CRIMP_STATE_DIR saves it first. Local, and waits for
 * nobody; no call on `comm` may be under way on this rank. A later call begins anew, as a new communicator's first:
 * before one all ranks must have given this. What was set for `comm` has to be set again then. MPI_SUCCESS where there
 * is nothing. */
CRIMP_API int crimp_forget(MPI_Comm comm);

/* "0.1.0". Callable at any time. */
CRIMP_API const char* crimp_version(void);

#ifdef __cplusplus
}
#endif
#endif
