//! The emulator catches what a GPU would let pass.

use gmm_kernels::device::{Buffer, Shared, emulate, load, store, thread, warp};

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
        // SAFETY: one word per thread.
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
        // Orders this warp alone.
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
        // SAFETY: the emulator checks it.
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
        // SAFETY: the emulator checks it.
        unsafe {
            if t != 3 {
                store(at, t, 1.0);
            }
            load(at.cast_const(), t);
        }
    });
}
