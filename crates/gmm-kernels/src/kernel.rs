//! The macro that makes a parameter list and the entry points that take it, and what the host knows of both.

#[cfg(not(target_arch = "nvptx64"))]
use core::ffi::c_void;

/// A kernel's parameters.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Arguments: Copy {
    /// Name and type of each, in order.
    const PARAMETERS: &'static [(&'static str, &'static str)];

    /// Where each value lies, in order: the list that `cuLaunchKernel` takes. Good while `self` stays where it is.
    fn pointers(&self) -> Vec<*mut c_void>;
}

/// A kernel as the host sees it.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
pub struct Kernel<A> {
    /// Name of the entry point in the PTX modules.
    pub name: &'static str,
    /// Bytes of dynamic shared memory that a launch with these arguments needs.
    pub shared_bytes: fn(&A) -> u64,
    /// Threads of each block in a launch with these arguments: [`THREADS`](crate::THREADS) but for few.
    pub threads: fn(&A) -> u32,
    /// What each thread runs.
    ///
    /// # Safety
    /// Pointers and lengths are as the arguments' fields say.
    #[cfg(feature = "emulator")]
    pub body: unsafe fn(A),
}

#[cfg(feature = "emulator")]
impl<A: Arguments> Kernel<A> {
    /// Runs the kernel in the emulator over a grid of blocks.
    ///
    /// # Safety
    /// Pointers and lengths are as the arguments' fields say. Accesses outside of live
    /// [`Buffer`](crate::device::Buffer)s panic.
    pub unsafe fn emulate(&self, grid: (u32, u32), arguments: A) {
        let shared = u32::try_from((self.shared_bytes)(&arguments)).expect("shared memory is small");
        // SAFETY: the caller's promise.
        crate::device::emulate(grid, (self.threads)(&arguments), shared, || unsafe { (self.body)(arguments) });
    }
}

/// Declares an argument struct and its kernels: `entry => name_f32, name_f64, body, shared bytes;`, or, where the
/// struct has no `T`, `entry => name, body, shared bytes;`. Before either's end `, threads` where they are not
/// [`THREADS`](crate::THREADS).
macro_rules! kernels {
    ($(#[$doc:meta])* $args:ident<T> $fields:tt
     $($(#[$entry_doc:meta])* $entry:ident => $f32:ident, $f64:ident, $body:path, $shared:path $(, $threads:path)?;)+) => {
        kernels!(@args [$(#[$doc])*] $args (<T>) (<T: $crate::Real>) $fields);
        $(
            $(#[$entry_doc])*
            #[cfg(not(target_arch = "nvptx64"))]
            pub fn $entry<T: $crate::Real>() -> $crate::Kernel<$args<T>> {
                let name = if T::BYTES == 4 { stringify!($f32) } else { stringify!($f64) };
                #[cfg(feature = "emulator")]
                let body = {
                    // Not generic, so that they are compiled here, once, and not in every crate that launches.
                    unsafe fn single(a: $args<f32>) {
                        #[allow(dead_code)]
                        type T = f32;
                        // SAFETY: the caller's promise.
                        unsafe { $body(a) }
                    }
                    unsafe fn double(a: $args<f64>) {
                        #[allow(dead_code)]
                        type T = f64;
                        // SAFETY: the caller's promise.
                        unsafe { $body(a) }
                    }
                    if T::BYTES == 4 {
                        // SAFETY: `T` is `f32`.
                        unsafe { core::mem::transmute::<unsafe fn($args<f32>), unsafe fn($args<T>)>(single) }
                    } else {
                        // SAFETY: `T` is `f64`.
                        unsafe { core::mem::transmute::<unsafe fn($args<f64>), unsafe fn($args<T>)>(double) }
                    }
                };
                let threads = kernels!(@threads $args<T> $(, $threads)?);
                $crate::Kernel {
                    name,
                    shared_bytes: $shared,
                    threads,
                    #[cfg(feature = "emulator")]
                    body,
                }
            }
            kernels!(@entry $args $fields $f32 f32 $body);
            kernels!(@entry $args $fields $f64 f64 $body);
        )+
    };
    ($(#[$doc:meta])* $args:ident $fields:tt
     $($(#[$entry_doc:meta])* $entry:ident => $body:path, $shared:path $(, $threads:path)?;)+) => {
        kernels!(@args [$(#[$doc])*] $args () () $fields);
        $(
            $(#[$entry_doc])*
            #[cfg(not(target_arch = "nvptx64"))]
            pub fn $entry() -> $crate::Kernel<$args> {
                let threads = kernels!(@threads $args $(, $threads)?);
                $crate::Kernel {
                    name: stringify!($entry),
                    shared_bytes: $shared,
                    threads,
                    #[cfg(feature = "emulator")]
                    body: $body,
                }
            }
            kernels!(@entry $args $fields $entry f64 $body);
        )+
    };
    (@threads $args:ty) => {
        |_: &$args| $crate::THREADS
    };
    (@threads $args:ty, $threads:path) => {
        $threads
    };
    (@args [$($doc:tt)*] $args:ident ($($t:tt)*) ($($bound:tt)*)
     { $($(#[$field_doc:meta])* $field:ident: $type:ty,)+ }) => {
        $($doc)*
        #[derive(Clone, Copy)]
        pub struct $args $($bound)* {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl $($bound)* $crate::Arguments for $args $($t)* {
            const PARAMETERS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), stringify!($type)),)+];

            fn pointers(&self) -> Vec<*mut core::ffi::c_void> {
                vec![$(core::ptr::from_ref(&self.$field).cast_mut().cast(),)+]
            }
        }
    };
    (@entry $args:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)+ } $name:ident $t:ident $body:path) => {
        #[cfg(target_arch = "nvptx64")]
        const _: () = {
            #[allow(dead_code)]
            type T = $t;
            // An array is a parameter here like any other.
            #[allow(improper_ctypes_definitions)]
            #[unsafe(no_mangle)]
            unsafe extern "ptx-kernel" fn $name($($field: $type,)+) {
                // SAFETY: the launcher's promise, which the fields' docs state.
                unsafe { $body($args { $($field,)+ }) }
            }
        };
    };
}
