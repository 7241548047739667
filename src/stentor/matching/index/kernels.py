"""The inner loops of the index, compiled to machine code.

A segment holds boxes sorted into *groups*: boxes of one shape (the same axes in the same roles)
that agree on all their equalities. The equalities lead to the group: a *signature* is the list of
axes that a shape has equalities on, and for each signature there is a hash table from coordinates
to the groups. A notification is looked up once for each signature, however many filters there are.
Signatures of one axis share a table. What has no equality, and every signature of several axes, is
listed under one axis that it needs, so that a search only sees what its attributes lead to, however
many others the filters look at.

Within a group the boxes are ordered so that neighbors are alike. If a single half-open range is
left, they are sorted by its end, and a binary search finds all that match in one run. If a single
interval is left, a large group holds intervals of about one size only, sorted by their lower ends:
those that contain a point begin no further below it than that size. Otherwise every 16 boxes have a
*node* with the least and greatest of their lower and upper ends, and every 16 nodes have a node
again. For a point, a node says one of three things: no box below contains it, every box below
contains it, or look closer. So the work for a notification grows with the boxes that contain it,
not with the boxes there are, and a whole run of matches costs a single step.

Shapes with very few boxes would cost more than they save. Their boxes are pooled by a single
equality or end, and carry what is left of their bounds as *extras*, which are tested one by one.
Those that nothing leads to but such ends are found by what they are not; see `complements`.

Results are *runs* of box numbers, (row, first, end), written into a buffer of the caller. A kernel
that finds the buffer too small reports the row where it stopped; the caller grows the buffer and
goes on from that row. `expand` turns runs into pairs of row and slot.

The arrays of a segment come in one array of words, in the order of `arrays.Arrays`. points has a
row for each notification and a column for each of the axes in `columns`; on all others its
coordinates are those of a notification without any attribute.
"""

# The code below is compiled by Numba: plain loops over arrays, no objects, and no annotations.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from contextlib import suppress

import numpy as np
from numba import njit


def _kernel(**options):
    """Compiled at the first call, and kept on disk if there is a place to keep it."""

    def decorated(function):
        kernel = njit(**options)(function)
        with suppress(RuntimeError, OSError):  # nowhere to write: then compiled in each process
            kernel.enable_caching()
        return kernel

    return decorated


#: Boxes per node, nodes per upper node.
FAN = 16
#: Up to this many boxes are tested one by one.
LEAF = 24
#: Levels of nodes that a group can have (16**6 boxes and more).
LEVELS = 6
#: What is left of a group after its equalities: nothing; a lower end; an upper end; an interval;
#: anything else.
PLAIN, FROM, UP_TO, INTERVAL, BOXES = 0, 1, 2, 3, 4


@_kernel(inline="always")
def _mixed(h, bits):
    """One step of a hash over the bits of coordinates.

    Small whole numbers differ only in the upper bits of a double, so these are folded down.
    """
    u = np.uint64(bits)
    h = (h ^ u ^ (u >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(32))


@_kernel()
def fill_table(coordinates, first_bucket, table, mask):
    """Enter the coordinates of buckets (one row each) into an open hash table."""
    bits = coordinates.view(np.int64)
    for i in range(coordinates.shape[0]):
        h = np.uint64(0)
        for j in range(coordinates.shape[1]):
            h = _mixed(h, bits[i, j])
        place = np.int64(h & np.uint64(mask))
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = first_bucket + i


@_kernel()
def fill_single(axes, coordinates, table, mask):
    """Enter the buckets of single equalities into their common hash table."""
    bits = coordinates.view(np.int64)
    for i in range(coordinates.shape[0]):
        place = np.int64(_mixed(_mixed(np.uint64(0), axes[i]), bits[i]) & np.uint64(mask))
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = i


@_kernel(inline="always")
def _emit(runs, count, begin, row, first, end):
    """Append a run, or lengthen the last one if it belongs to the same group."""
    if count > begin and runs[count - 1, 2] == first:
        runs[count - 1, 2] = end
        return count
    runs[count, 0] = row
    runs[count, 1] = first
    runs[count, 2] = end
    return count + 1


@_kernel(inline="always")
def _scan_leaf(x, row, first, end, k, dims, dim_axis, dim_hole, bounds, at, runs, count, begin):
    """Test boxes one by one. `at` is where the bounds of the first one stand."""
    for i in range(first, end):
        inside = True
        for d in range(k):
            v = x[dim_axis[dims + d]]
            low = bounds[at]
            high = bounds[at + 1]
            if dim_hole[dims + d]:
                if not (v < low or v > high):
                    inside = False
                    at += 2 * (k - d)
                    break
            elif not (v >= low and v <= high):
                inside = False
                at += 2 * (k - d)
                break
            at += 2
        if inside:
            count = _emit(runs, count, begin, row, i, i + 1)
    return count


@_kernel(inline="always")
def _judge(x, k, dims, dim_axis, dim_hole, nodes, at):
    """0: no box below the node contains x; 2: all do; 1: some may."""
    verdict = 2
    for d in range(k):
        v = x[dim_axis[dims + d]]
        least_low = nodes[at]
        most_low = nodes[at + 1]
        least_high = nodes[at + 2]
        most_high = nodes[at + 3]
        if dim_hole[dims + d]:
            if v >= most_low and v <= least_high:
                verdict = 0
                break
            if v >= least_low and v <= most_high:
                verdict = 1
        else:
            if v < least_low or v > most_high:
                verdict = 0
                break
            if v < most_low or v > least_high:
                verdict = 1
        at += 4
    return verdict


@_kernel(inline="always")
def _passes(x, box, extra_ptr, extra, extra_ends):
    """Whether x satisfies the extras of a box."""
    inside = True
    for e in range(3 * extra_ptr[box], 3 * extra_ptr[box + 1], 3):
        axis = extra[e]
        if axis < 0:
            v = x[~axis]
            if not (v < extra_ends[e + 1] or v > extra_ends[e + 2]):
                inside = False
                break
        else:
            v = x[axis]
            if not (v >= extra_ends[e + 1] and v <= extra_ends[e + 2]):
                inside = False
                break
    return inside


#: The place of a single bit from its product with this number, which has any six bits once.
_BITS_ONCE = 0x03F79D71B4CB0A89
_PLACE_OF_BIT = np.zeros(64, np.int64)
_PLACE_OF_BIT[[(_BITS_ONCE << i & (1 << 64) - 1) >> 58 for i in range(64)]] = np.arange(64)


@_kernel(inline="always")
def _bit_number(bit):
    return _PLACE_OF_BIT[(bit * np.uint64(_BITS_ONCE)) >> np.uint64(58)]


@_kernel(inline="always")
def _leave_out_above(v, at, complements, values, bits, words, found):
    """Mark the boxes whose lower ends are above v; `at` is where it says which ends there are."""
    count = complements[at + 1]
    low = first = complements[1] + complements[at]
    high = first + count
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= v:
            low = middle + 1
        else:
            high = middle
    low -= first
    boxes = complements[3] + complements[at + 2]
    block = (low + words - 1) // words
    for i in range(boxes + low, boxes + min(block * words, count)):
        box = complements[i]
        found[box >> 6] |= np.uint64(1) << np.uint64(box & 63)
    if block * words < count:
        begin = complements[4] + complements[at + 3] + block * words
        for word in range(words):
            found[word] |= bits[begin + word]


@_kernel()
def _left_out(x, number, complements):
    """A bit for each box of a complement that leaves out what x says; see `complements`."""
    values = complements.view(np.float64)
    bits = complements.view(np.uint64)
    words = complements[6 + 4 * number]
    found = np.zeros(words, np.uint64)
    for a in range(complements[7 + 4 * number], complements[8 + 4 * number]):
        axis = complements[0] + 12 * a
        v = x[complements[axis]]
        entry = complements[2] + 2 * complements[axis + 3]
        if v == v:
            if complements[axis + 5]:
                _leave_out_above(v, axis + 4, complements, values, bits, words, found)
            if complements[axis + 9]:
                _leave_out_above(-v, axis + 8, complements, values, bits, words, found)
            first = low = complements[1] + complements[axis + 1]
            high = end = low + complements[axis + 2]
            while low < high:
                middle = (low + high) >> 1
                if values[middle] < v:
                    low = middle + 1
                else:
                    high = middle
            if low == end or values[low] != v:
                continue
            entry += 2 * (1 + low - first)
        if complements[entry + 1] < 0:
            at = complements[4] + complements[entry]
            for word in range(words):
                found[word] |= bits[at + word]
        else:
            at = complements[3] + complements[entry]
            for i in range(at, at + complements[entry + 1]):
                box = complements[i]
                found[box >> 6] |= np.uint64(1) << np.uint64(box & 63)
    return found


@_kernel()
def _emit_not_left_out(
    x, row, number, complements, first, end, extra_ptr, extra, extra_ends, runs, count
):
    """Emit the boxes of a complement that do not leave out what x says."""
    begin = count
    left_out = _left_out(x, number, complements)
    for word in range(left_out.shape[0]):
        rest = ~left_out[word]
        box = first + 64 * word
        whole = rest == ~np.uint64(0) and box + 64 <= end
        if whole and extra_ptr[box] == extra_ptr[box + 64]:
            count = _emit(runs, count, begin, row, box, box + 64)
            continue
        while rest:
            lowest = rest & (~rest + np.uint64(1))
            rest ^= lowest
            box = first + 64 * word + _bit_number(lowest)
            if box >= end:
                break
            if _passes(x, box, extra_ptr, extra, extra_ends):
                count = _emit(runs, count, begin, row, box, box + 1)
    return count


@_kernel(inline="always")
def _part(words, number):
    """One of the arrays that stand in `words`."""
    return words[words[number] : words[number + 1]]


@_kernel()
def _scan(points, columns, start, tokens, words, runs, work, x):
    """Match rows from `start` on. Returns (row where it stopped, number of runs).

    `tokens[tokens[row]:tokens[row + 1]]` are further buckets that tokens of the row led to.
    """
    use = _part(words, 0)
    standing = _part(words, 1)
    single = _part(words, 2).view(np.int32)
    single_bucket = _part(words, 3)
    single_key = single_bucket.view(np.float64)
    signature = _part(words, 4)
    signature_axis = _part(words, 5)
    table = _part(words, 6).view(np.int32)
    key = _part(words, 7).view(np.float64)
    visit_ptr = _part(words, 8)
    visit = _part(words, 9)
    bucket_ptr = _part(words, 10)
    bucket_group = _part(words, 11)
    free = _part(words, 12)
    group = _part(words, 13)
    group_size = _part(words, 14).view(np.float64)
    shape = _part(words, 15)
    level_nodes = _part(words, 16)
    node_at = _part(words, 17)
    dim_axis = _part(words, 18)
    dim_hole = _part(words, 19)
    bounds = _part(words, 20).view(np.float64)
    nodes = _part(words, 21).view(np.float64)
    extra_ptr = _part(words, 22)
    extra = _part(words, 23)
    extra_ends = extra.view(np.float64)
    complements = _part(words, 24)
    stack = work[: 2 * LEVELS]
    todo = work[2 * LEVELS :]
    bits = x.view(np.int64)
    single_mask = single.shape[0] - 1
    count = 0
    for row in range(start, points.shape[0]):
        for c in range(columns.shape[0]):
            x[columns[c]] = points[row, c]
        before = count

        # Which groups to look into.
        groups = 0
        if free.shape[0] > todo.shape[0]:
            return row, before
        for p in range(free.shape[0]):
            todo[groups] = free[p]
            groups += 1
        for c in range(columns.shape[0] + standing.shape[0]):
            if c < columns.shape[0]:
                axis = columns[c]
                if use[axis] == 0 or use[axis] & 2:
                    continue
            else:
                axis = standing[c - columns.shape[0]]
            v = x[axis]
            if v != v:
                continue
            if use[axis] & 1:
                place = np.int64(_mixed(_mixed(np.uint64(0), axis), bits[axis])) & single_mask
                bucket = single[place]
                while bucket >= 0:
                    at = 4 * bucket
                    if single_key[at + 1] == v and single_bucket[at] == axis:
                        first = single_bucket[at + 2]
                        end = single_bucket[at + 3]
                        if groups + end - first > todo.shape[0]:
                            return row, before
                        for p in range(first, end):
                            todo[groups] = bucket_group[p]
                            groups += 1
                        break
                    place = (place + 1) & single_mask
                    bucket = single[place]
            if not use[axis] & 4:
                continue
            for q in range(visit_ptr[axis], visit_ptr[axis + 1]):
                s = visit[q]
                if s >= 0:
                    if groups == todo.shape[0]:
                        return row, before
                    todo[groups] = s
                    groups += 1
                    continue
                s = 6 * ~s
                width = signature[s]
                at = signature[s + 1]
                h = np.uint64(0)
                there = True
                for j in range(width):
                    v = x[signature_axis[at + j]]
                    if v != v:
                        there = False
                        break
                    h = _mixed(h, bits[signature_axis[at + j]])
                if not there:
                    continue
                mask = signature[s + 3]
                place = np.int64(h & np.uint64(mask))
                bucket = table[signature[s + 2] + place]
                while bucket >= 0:
                    same = True
                    key_at = signature[s + 5] + (bucket - signature[s + 4]) * width
                    for j in range(width):
                        if key[key_at + j] != x[signature_axis[at + j]]:
                            same = False
                            break
                    if same:
                        first = bucket_ptr[bucket]
                        end = bucket_ptr[bucket + 1]
                        if groups + end - first > todo.shape[0]:
                            return row, before
                        for p in range(first, end):
                            todo[groups] = bucket_group[p]
                            groups += 1
                        break
                    place = (place + 1) & mask
                    bucket = table[signature[s + 2] + place]
        for t in range(tokens[row], tokens[row + 1]):
            bucket = tokens[t]
            if groups + bucket_ptr[bucket + 1] - bucket_ptr[bucket] > todo.shape[0]:
                return row, before
            for p in range(bucket_ptr[bucket], bucket_ptr[bucket + 1]):
                todo[groups] = bucket_group[p]
                groups += 1

        for i in range(groups):
            g = todo[i]
            first = group[4 * g]
            end = group[4 * g + 1]
            s = 6 * group[4 * g + 2]
            k = shape[s]
            dims = shape[s + 1]
            kind = shape[s + 4]
            begin = count
            there = True
            for d in range(k):
                v = x[dim_axis[dims + d]]
                if v != v:
                    there = False
                    break
            if not there:
                continue
            if count + (end - first) // 2 + 2 > runs.shape[0]:
                return row, before
            offset = shape[s + 3] - shape[s + 2] * k * 2  # bounds of box b: offset + b * k * 2
            if kind < INTERVAL:
                low = first
                high = end
                if kind == FROM:
                    v = x[dim_axis[dims]]
                    while low < high:
                        middle = (low + high) >> 1
                        if bounds[offset + middle * 2] <= v:
                            low = middle + 1
                        else:
                            high = middle
                    high = low
                    low = first
                elif kind == UP_TO:
                    v = x[dim_axis[dims]]
                    while low < high:
                        middle = (low + high) >> 1
                        if bounds[offset + middle * 2 + 1] < v:
                            low = middle + 1
                        else:
                            high = middle
                    high = end
                rest = shape[s + 5]
                if not rest:
                    if low < high:
                        count = _emit(runs, count, begin, row, low, high)
                    continue
                if rest > 1:
                    count = _emit_not_left_out(
                        x,
                        row,
                        rest - 2,
                        complements,
                        first,
                        end,
                        extra_ptr,
                        extra,
                        extra_ends,
                        runs,
                        count,
                    )
                    continue
                for box in range(low, high):
                    if _passes(x, box, extra_ptr, extra, extra_ends):
                        count = _emit(runs, count, begin, row, box, box + 1)
                continue
            if end - first <= LEAF:
                at = offset + first * k * 2
                count = _scan_leaf(
                    x, row, first, end, k, dims, dim_axis, dim_hole, bounds, at, runs, count, begin
                )
                continue
            if kind == INTERVAL:
                v = x[dim_axis[dims]]
                # A little further down than exact arithmetic would go; upper ends are tested.
                least = v - group_size[g] - (abs(v) + group_size[g]) * 1e-12
                low = first
                high = end
                while low < high:
                    middle = (low + high) >> 1
                    if not bounds[offset + middle * 2] >= least:  # NaN if v is infinite
                        low = middle + 1
                    else:
                        high = middle
                for box in range(low, end):
                    if bounds[offset + box * 2] > v:
                        break
                    if bounds[offset + box * 2 + 1] >= v:
                        count = _emit(runs, count, begin, row, box, box + 1)
                continue
            level = top = group[4 * g + 3]
            mine = 2 * LEVELS * g  # among those of all groups
            nodes_at = LEVELS * group[4 * g + 2]
            stack[2 * level] = 0
            stack[2 * level + 1] = level_nodes[mine + 2 * level + 1]
            while True:
                j = stack[2 * level]
                if j == stack[2 * level + 1]:
                    if level == top:
                        break
                    level += 1
                    continue
                stack[2 * level] = j + 1
                at = node_at[nodes_at + level] + (level_nodes[mine + 2 * level] + j) * k * 4
                verdict = _judge(x, k, dims, dim_axis, dim_hole, nodes, at)
                if verdict == 0:
                    continue
                low = first + j * (FAN << (4 * level))
                high = min(low + (FAN << (4 * level)), end)
                if verdict == 2:
                    count = _emit(runs, count, begin, row, low, high)
                elif level == 0:
                    at = offset + low * k * 2
                    count = _scan_leaf(
                        x,
                        row,
                        low,
                        high,
                        k,
                        dims,
                        dim_axis,
                        dim_hole,
                        bounds,
                        at,
                        runs,
                        count,
                        begin,
                    )
                else:
                    level -= 1
                    stack[2 * level] = j * FAN
                    stack[2 * level + 1] = min(j * FAN + FAN, level_nodes[mine + 2 * level + 1])
    return points.shape[0], count


@_kernel(inline="always")
def _scan_and_tidy(points, columns, start, tokens, words, runs, work, x):
    """Leaves the coordinates as they were, for the next search."""
    stop, count = _scan(points, columns, start, tokens, words, runs, work, x)
    use = _part(words, 0)
    for c in range(columns.shape[0]):
        x[columns[c]] = 1.0 if use[columns[c]] & 2 else np.nan
    return stop, count


@_kernel(nogil=True)
def scan_freely(points, columns, start, tokens, words, runs, work, x):
    """Search while other threads run: for large batches."""
    return _scan_and_tidy(points, columns, start, tokens, words, runs, work, x)


@_kernel()
def scan_at_once(points, columns, start, tokens, words, runs, work, x):
    """Search without letting go: for small batches.

    A thread that lets go of the interpreter may wait for milliseconds until it gets it back.
    """
    return _scan_and_tidy(points, columns, start, tokens, words, runs, work, x)


@_kernel()
def recent_place(coordinates, signature, mask):
    """Where the chain of the recent boxes with these equalities begins."""
    bits = coordinates.view(np.int64)
    h = _mixed(np.uint64(0), signature)
    for j in range(bits.shape[0]):
        h = _mixed(h, bits[j])
    return np.int64(h) & mask


#: Rows that are led to recent boxes together: step by step for all, which a processor foresees.
BLOCK = 128


@_kernel()
def _follow(points, chains, n, signature, limit, column, arrays, runs, count):
    """Test the boxes of chains, each given by row and first box; -1 if there is no room."""
    following = arrays[1]
    signature_of = arrays[2]
    standing = arrays[6]
    bound_ptr = arrays[10]
    bound = arrays[11]
    ends = bound.view(np.float64)
    one = np.uint64(1)
    for i in range(n):
        row = chains[i] >> 32
        box = chains[i] & 0xFFFFFFFF
        while box >= 0 and box < limit:
            at = np.uint64(box)  # an index with a sign would be tested for it at each use
            e = np.uint64(3 * bound_ptr[at])
            end = np.uint64(3 * bound_ptr[at + one])
            inside = signature_of[at] == signature
            while inside and e < end:
                axis = bound[e]
                place = np.uint64(axis if axis >= 0 else ~axis)
                if column[place] >= 0:
                    v = points[row, column[place]]
                else:
                    v = 1.0 if standing[place] else np.nan
                low = ends[e + one]
                high = ends[e + one + one]
                # Both ends at once: which of them fails is hard to foresee.
                inside = (v >= low) & (v <= high) if axis >= 0 else (v < low) | (v > high)
                e += np.uint64(3)
            if inside:
                if count == runs.shape[0]:
                    return -1
                runs[count, 0] = row
                runs[count, 1] = box
                runs[count, 2] = box + 1
                count += 1
            box = following[at]
    return count


@_kernel()
def _sort_runs(runs, begin, end, row, places):
    """Sort by row those of a block that begins with `row`; there is as much room behind them."""
    places[:] = 0
    for i in range(begin, end):
        places[runs[i, 0] - row] += 1
    at = end
    for i in range(places.shape[0]):
        at += places[i]
        places[i] = at - places[i]
    for i in range(begin, end):
        to = places[runs[i, 0] - row]
        places[runs[i, 0] - row] = to + 1
        for j in range(3):
            runs[to, j] = runs[i, j]
    for i in range(begin, end):
        for j in range(3):
            runs[i, j] = runs[i + end - begin, j]


@_kernel()
def _scan_recent(points, columns, start, tokens, arrays, limit, signatures, runs, work, column):
    """As `_scan`, among as many recent boxes and signatures as there were when the search began.

    Tokens lead to the first box of a chain. `column` says where the points have an axis, -1 if they
    have not; a row without a coordinate may be led astray, but every bound of a box is tested.
    """
    table = arrays[0]
    first = arrays[3]
    axis_first = arrays[4]
    axis_signature = arrays[5]
    standing = arrays[6]
    signature = arrays[7]
    signature_next = arrays[8]
    signature_axis = arrays[9]
    bits = points.view(np.int64)
    mask = table.shape[0] - 1
    chains = work[:BLOCK]
    places = work[BLOCK : 2 * BLOCK]
    hashes = places.view(np.uint64)
    for c in range(columns.shape[0]):
        column[columns[c]] = c
    count = 0
    for begin in range(start, points.shape[0], BLOCK):
        end = min(begin + BLOCK, points.shape[0])
        before = count
        # The boxes that all are led to, those that an axis leads to, those of each signature.
        for c in range(-1, columns.shape[0]):
            if c >= 0 and standing[columns[c]]:
                continue
            s = -1
            while s < signatures:
                n = 0
                if s < 0:
                    box = first[0] if c < 0 else axis_first[columns[c]]
                    if box >= 0:
                        n = end - begin
                        for row in range(begin, end):
                            chains[row - begin] = (row << 32) | box
                else:
                    there = True
                    for j in range(signature[s, 1], signature[s, 1] + signature[s, 0]):
                        there = there and column[signature_axis[j]] >= 0
                    if there:
                        hashes[: end - begin] = _mixed(np.uint64(0), s)
                        for j in range(signature[s, 1], signature[s, 1] + signature[s, 0]):
                            d = column[signature_axis[j]]
                            for row in range(begin, end):
                                hashes[row - begin] = _mixed(hashes[row - begin], bits[row, d])
                        for row in range(begin, end):
                            box = table[np.int64(hashes[row - begin]) & mask]
                            chains[n] = (row << 32) | box
                            n += box >= 0
                if n:
                    count = _follow(points, chains, n, s, limit, column, arrays, runs, count)
                    if count < 0:
                        return begin, before
                if c < 0:
                    break
                s = axis_signature[columns[c]] if s < 0 else signature_next[s]
                if s < 0:
                    break
        for row in range(begin, end):
            for t in range(tokens[row], tokens[row + 1]):
                chains[0] = (row << 32) | tokens[t]
                count = _follow(points, chains, 1, -1, limit, column, arrays, runs, count)
                if count < 0:
                    return begin, before
        if end - begin > 1:
            if 2 * count - before > runs.shape[0]:
                return begin, before
            _sort_runs(runs, before, count, begin, places)
    return points.shape[0], count


@_kernel(inline="always")
def _scan_recent_and_tidy(
    points, columns, start, tokens, arrays, limit, signatures, runs, work, column
):
    stop, count = _scan_recent(
        points, columns, start, tokens, arrays, limit, signatures, runs, work, column
    )
    for c in range(columns.shape[0]):
        column[columns[c]] = -1
    return stop, count


@_kernel(nogil=True)
def scan_recent_freely(points, columns, start, tokens, arrays, limit, signatures, runs, work, x):
    """Search recent boxes while other threads run."""
    return _scan_recent_and_tidy(
        points, columns, start, tokens, arrays, limit, signatures, runs, work, x
    )


@_kernel()
def scan_recent_at_once(points, columns, start, tokens, arrays, limit, signatures, runs, work, x):
    """Search recent boxes without letting go."""
    return _scan_recent_and_tidy(
        points, columns, start, tokens, arrays, limit, signatures, runs, work, x
    )


@_kernel()
def count_runs(runs, n, checked_from):
    """How many boxes the runs hold, those without and those with checks."""
    plain = 0
    checked = 0
    for i in range(n):
        size = runs[i, 2] - runs[i, 1]
        if runs[i, 1] >= checked_from:
            checked += size
        else:
            plain += size
    return plain, checked


@_kernel()
def expand(
    runs, n, checked_from, slots, labels, alive, other_rows, other_labels, rows_out, labels_out
):
    """Write (row, label) for every live box of the runs without checks; returns their number.

    Other pairs, by row as the runs are, are written in between.
    """
    at = 0
    other = 0
    for i in range(n):
        first = runs[i, 1]
        if first >= checked_from:
            continue
        row = runs[i, 0]
        while other < other_rows.shape[0] and other_rows[other] < row:
            rows_out[at] = other_rows[other]
            labels_out[at] = other_labels[other]
            other += 1
            at += 1
        for box in range(first, runs[i, 2]):
            rows_out[at] = row
            labels_out[at] = labels[box]
            at += alive[slots[box]]
    while other < other_rows.shape[0]:
        rows_out[at] = other_rows[other]
        labels_out[at] = other_labels[other]
        other += 1
        at += 1
    return at


@_kernel()
def expand_checked(runs, n, checked_from, rows_out, boxes_out):
    """Write (row, box) for every box of the runs with checks."""
    at = 0
    for i in range(n):
        if runs[i, 1] >= checked_from:
            for box in range(runs[i, 1], runs[i, 2]):
                rows_out[at] = runs[i, 0]
                boxes_out[at] = box
                at += 1
    return at


@_kernel()
def test_lists(rows, boxes, lists, begins, members, row_begins, elements, marks, found):
    """Whether each row, by row, has an element of every list of the box beside it; see `listed`.

    `marks` has a -1 for each element there is: the last row that has it.
    """
    marked = -1
    for i in range(rows.shape[0]):
        row = rows[i]
        if row != marked:
            for e in range(row_begins[row], row_begins[row + 1]):
                marks[elements[e]] = row
            marked = row
        for check in range(lists[boxes[i]], lists[boxes[i] + 1]):
            there = False
            for m in range(begins[check], begins[check + 1]):
                if marks[members[m]] == row:
                    there = True
                    break
            if not there:
                found[i] = False
                break


@_kernel()
def merge(rows, labels, other_rows, other_labels, rows_out, labels_out):
    """Merge two lists of pairs that are ordered by row."""
    i = 0
    j = 0
    for at in range(rows_out.shape[0]):
        if j == other_rows.shape[0] or (i < rows.shape[0] and rows[i] <= other_rows[j]):
            rows_out[at] = rows[i]
            labels_out[at] = labels[i]
            i += 1
        else:
            rows_out[at] = other_rows[j]
            labels_out[at] = other_labels[j]
            j += 1


@_kernel()
def drop_repeated(rows, slots, several, last, rows_out, slots_out):
    """Copy pairs without those that repeat one before; returns how many.

    Only the slots marked in `several` can repeat. `last` has a zero for each slot there is.
    """
    n = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if several[slot]:
            if last[slot] == rows[i] + 1:
                continue
            last[slot] = rows[i] + 1
        rows_out[n] = rows[i]
        slots_out[n] = slot
        n += 1
    return n


@_kernel()
def group_rows(rows, slots, counts, slots_out, ends_out, rows_out):
    """Sort pairs of row and slot by slot, in linear time; the rows of a slot keep their order.

    `counts` has a zero for each slot there is. Writes the distinct slots, where the rows of each
    end, and the rows; returns the number of distinct slots.
    """
    distinct = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if counts[slot] == 0:
            slots_out[distinct] = slot
            distinct += 1
        counts[slot] += 1
    end = 0
    for d in range(distinct):
        slot = slots_out[d]
        begin = end
        end += counts[slot]
        ends_out[d] = end
        counts[slot] = begin
    for i in range(slots.shape[0]):
        slot = slots[i]
        rows_out[counts[slot]] = rows[i]
        counts[slot] += 1
    return distinct


@_kernel()
def gather(table, codes, out, column):
    """out[i, column] = table[codes[i]]: values of a dictionary-encoded column."""
    for i in range(codes.shape[0]):
        out[i, column] = table[codes[i]]


# -- texts within strings; the theory is in `substrings`


@_kernel(inline="always")
def _next_state(state, letter, keys, targets, mask):
    """Where a letter leads from a state, -1 if nowhere; and where that stands, or would stand."""
    wanted = (np.int64(state) << 21) | np.int64(letter)
    place = np.int64(_mixed(np.uint64(0), wanted) & np.uint64(mask))
    while keys[place] >= 0:
        if keys[place] == wanted:
            return np.int64(targets[place]), place
        place = (place + 1) & mask
    return np.int64(-1), place


@_kernel(nogil=True)
def build_automaton(letters, ends, keys, targets, states):
    """Fill the table of transitions and the states, rows `fail`, `ends` and `link`; count these."""
    mask = keys.shape[0] - 1
    fail, whole, link = states[0], states[1], states[2]
    whole[:] = -1
    parent = np.zeros(states.shape[1], np.int32)
    letter_of = np.zeros(states.shape[1], np.uint32)
    depth = np.zeros(states.shape[1], np.int32)
    count = 1
    at = 0
    for text in range(ends.shape[0]):
        state = np.int64(0)
        while at < ends[text]:
            following, place = _next_state(state, letters[at], keys, targets, mask)
            if following < 0:
                following = np.int64(count)
                keys[place] = (state << 21) | np.int64(letters[at])
                targets[place] = count
                parent[count] = state
                letter_of[count] = letters[at]
                depth[count] = depth[state] + 1
                count += 1
            state = following
            at += 1
        whole[state] = text
    # Shorter states first: those of others that fail at a letter lead there.
    for state in np.argsort(depth[:count], kind="mergesort")[1:]:
        before = np.int64(parent[state])
        while before:
            before = np.int64(fail[before])
            following, _ = _next_state(before, letter_of[state], keys, targets, mask)
            if following >= 0:
                fail[state] = following
                break
        link[state] = fail[state] if whole[fail[state]] >= 0 else link[fail[state]]
    return count


@_kernel(inline="always")
def _find_texts(letters, ends, start, automaton, seen, used, counts, found, total):
    keys, targets, states = automaton
    mask = keys.shape[0] - 1
    fail, whole, link = states[0], states[1], states[2]
    for string in range(start, ends.shape[0]):
        before = total
        state = np.int64(0)
        for at in range(ends[string - 1] if string else 0, ends[string]):
            following, _ = _next_state(state, letters[at], keys, targets, mask)
            while following < 0 and state:
                state = np.int64(fail[state])
                following, _ = _next_state(state, letters[at], keys, targets, mask)
            state = max(following, np.int64(0))
            end = state if whole[state] >= 0 else np.int64(link[state])
            while end:
                text = whole[end]
                if seen[text] != used + string + 1:
                    if total == found.shape[0]:
                        return string, before
                    seen[text] = used + string + 1
                    found[total] = text
                    total += 1
                end = np.int64(link[end])
        counts[string] = total - before
    return ends.shape[0], total


@_kernel()
def find_texts(letters, ends, start, automaton, seen, used, counts, found, total):
    """Find texts in strings from `start` on; returns where it stopped for want of room, and how
    many are found. A text found in a string is marked in `seen` with `used` + its number + 1."""
    return _find_texts(letters, ends, start, automaton, seen, used, counts, found, total)


@_kernel(nogil=True)
def find_texts_freely(letters, ends, start, automaton, seen, used, counts, found, total):
    """The same while other threads run: for many strings."""
    return _find_texts(letters, ends, start, automaton, seen, used, counts, found, total)
