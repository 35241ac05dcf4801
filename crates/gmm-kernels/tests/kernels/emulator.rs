//! The emulator detects what a GPU would let pass.

use gmm_kernels::device::{Buffer, Shared, copies, emulate, load, store, thread, warp};

#[test]
fn threads_see_what_others_stored_before_a_barrier() {
    let mut out = Buffer::new(&[0_u32; 256]);
    let to = out.pointer_mut();
    emulate((2, 1), 128, 512, || {
        let shared = Shared::<f32>::at(0);
        let t = thread::thread_idx_x();
        shared.store(t, t as f32);
        thread::sync_threads();
        let v = shared.load(127 - t) as u32;
        // SAFETY: `out` has 256 words, one per thread of both blocks.
        unsafe { store(to, thread::index_1d(), v + 1000 * thread::block_idx_x()) };
    });
    assert!(out.to_vec().iter().enumerate().all(|(i, v)| *v as usize == 127 - i % 128 + 1000 * (i / 128)));
}

#[test]
#[should_panic(expected = "thread 7 returned while thread 0 waits at a barrier")]
fn a_thread_that_leaves_before_a_barrier_is_named() {
    emulate((1, 1), 64, 0, || {
        if thread::thread_idx_x() != 7 {
            thread::sync_threads();
        }
    });
}

#[test]
#[should_panic(expected = "thread 35 returned while thread 32 waits in shuffle_xor")]
fn a_lane_that_misses_a_shuffle_is_named() {
    emulate((1, 1), 64, 0, || {
        if thread::thread_idx_x() != 35 {
            warp::shuffle_xor_u32(1, 1);
        }
    });
}

#[test]
#[should_panic(expected = "thread 0 writes and thread 1 reads shared word 0 with no barrier between")]
fn a_missing_barrier_is_a_race() {
    emulate((1, 1), 32, 256, || {
        let (shared, t) = (Shared::<f32>::at(0), thread::thread_idx_x());
        shared.store(t, 1.0);
        if t > 0 {
            shared.load(t - 1);
        }
    });
}

#[test]
#[should_panic(expected = "thread 0 reads and thread 63 writes shared word 4 with no barrier between")]
fn a_store_over_what_others_still_read_is_a_race() {
    emulate((1, 1), 64, 256, || {
        let (shared, t) = (Shared::<f32>::at(0), thread::thread_idx_x());
        shared.store(t, 1.0);
        thread::sync_threads();
        shared.load((t + 1) % 64);
        // A barrier for this warp only.
        warp::sync_warp();
        if t == 63 {
            shared.store(1, 2.0);
        }
    });
}

#[test]
fn sync_warp_orders_a_warp() {
    emulate((1, 1), 32, 128, || {
        let (shared, t) = (Shared::<f32>::at(0), thread::thread_idx_x());
        shared.store(t, t as f32);
        warp::sync_warp();
        assert_eq!(shared.load(t ^ 1), (t ^ 1) as f32);
    });
}

#[test]
#[should_panic(expected = "shared word at 40 read before written")]
fn shared_memory_starts_unwritten() {
    emulate((1, 1), 32, 64, || {
        Shared::<f32>::at(0).load(10);
    });
}

#[test]
#[should_panic(expected = "passes the end of shared memory")]
fn shared_memory_has_an_end() {
    emulate((1, 1), 32, 64, || Shared::<f64>::at(0).store(8, 1.0));
}

#[test]
#[should_panic(expected = "misaligned")]
fn wide_stores_are_aligned() {
    emulate((1, 1), 32, 64, || Shared::<f32>::at(0).store4(2, [1.0; 4]));
}

#[test]
#[should_panic(expected = "thread 5: access to 4 bytes of global memory outside every buffer")]
fn global_memory_has_an_end() {
    let buffer = Buffer::new(&[0_u32; 5]);
    let from = buffer.pointer();
    emulate((1, 1), 32, 0, || {
        // SAFETY: the emulator panics on the access outside the buffer.
        unsafe { load(from, thread::index_1d()) };
    });
}

#[test]
#[should_panic(expected = "thread 3: global memory read before written")]
fn global_memory_starts_unwritten() {
    let mut buffer = Buffer::<f64>::unwritten(32);
    let at = buffer.pointer_mut();
    emulate((1, 1), 32, 0, || {
        let t = thread::index_1d();
        // SAFETY: the buffer has 32 numbers, one per thread; the emulator panics on the unwritten one.
        unsafe {
            if t != 3 {
                store(at, t, 1.0);
            }
            load(at.cast_const(), t);
        }
    });
}

/// Runs a block of 64 threads, each of which starts copying two numbers to its own slot and then calls `work`.
fn sends(work: impl Fn(Shared<f64>, u32)) {
    let numbers: Vec<f64> = (0..256).map(f64::from).collect();
    let from = Buffer::new(&numbers);
    let from = from.pointer();
    emulate((1, 1), 64, 1024, || {
        let (shared, t) = (Shared::<f64>::at(0), thread::thread_idx_x());
        // SAFETY: thread `t < 64` copies numbers `2t` and `2t + 1` of 256, 16-byte aligned.
        unsafe { copies::send(16 * t, from.wrapping_add(2 * t as usize).cast()) };
        work(shared, t);
    });
}

#[test]
fn copies_are_there_for_their_thread_after_its_wait_and_for_others_after_a_barrier() {
    sends(|shared, t| {
        copies::arrive();
        assert_eq!(shared.load(2 * t + 1), f64::from(2 * t + 1));
        thread::sync_threads();
        let other = 63 - t;
        assert_eq!(shared.load(2 * other), f64::from(2 * other));
    });
}

#[test]
#[should_panic(expected = "thread 0 reads shared word 0 while a copy to it is in flight")]
fn a_read_before_the_wait_is_told() {
    sends(|shared, t| {
        shared.load(2 * t);
    });
}

#[test]
#[should_panic(expected = "thread 0 writes shared word 8 while a copy to it is in flight")]
fn a_store_under_a_copy_is_told() {
    sends(|shared, t| shared.store(2 * t + 1, 0.0));
}

#[test]
#[should_panic(expected = "thread 0 writes and thread 1 reads shared word 0 with no barrier between")]
fn a_wait_is_no_barrier() {
    sends(|shared, t| {
        copies::arrive();
        if t == 1 {
            shared.load(0);
        }
    });
}

#[test]
#[should_panic(expected = "thread 0 reads and thread 1 writes shared word 0 with no barrier between")]
fn a_copy_over_what_others_still_read_is_a_race() {
    let from = Buffer::new(&[1.0_f64, 2.0]);
    let from = from.pointer();
    emulate((1, 1), 32, 16, || {
        let (shared, t) = (Shared::<f64>::at(0), thread::thread_idx_x());
        if t == 0 {
            shared.store(0, 1.0);
        }
        thread::sync_threads();
        if t == 0 {
            shared.load(0);
        } else if t == 1 {
            // SAFETY: the buffer has at least two numbers, 16-byte aligned.
            unsafe { copies::send(0, from.cast()) };
        }
    });
}

#[test]
fn groups_arrive_in_their_order() {
    sends(|shared, t| {
        copies::end_group();
        // An empty group, which counts nevertheless.
        copies::end_group();
        copies::arrive_but::<1>();
        assert_eq!(shared.load(2 * t), f64::from(2 * t));
    });
}

#[test]
#[should_panic(expected = "thread 0 reads shared word 0 while a copy to it is in flight")]
fn a_wait_for_all_groups_but_the_last_leaves_that_on_its_way() {
    sends(|shared, t| {
        copies::end_group();
        copies::arrive_but::<1>();
        shared.load(2 * t);
    });
}

#[test]
#[should_panic(expected = "thread 0 reads shared word 0 while a copy to it is in flight")]
fn what_is_in_no_group_yet_no_group_waits_for() {
    sends(|shared, t| {
        copies::arrive_but::<0>();
        shared.load(2 * t);
    });
}
