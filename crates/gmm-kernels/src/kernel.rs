//! The macro that declares a parameter list and its entry points, and the host's description of both.

#[cfg(not(target_arch = "nvptx64"))]
use core::ffi::c_void;

/// A kernel's parameters.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Arguments: Copy {
    /// Name and type of each parameter, in order.
    const PARAMETERS: &'static [(&'static str, &'static str)];

    /// Returns pointers to the values, in order: the list that `cuLaunchKernel` takes. Valid while `self` is not moved.
    fn pointers(&self) -> Vec<*mut c_void>;
}

/// A kernel as the host launches it.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
pub struct Kernel<A> {
    /// Name of the entry point in the PTX modules.
    pub name: &'static str,
    /// Bytes of dynamic shared memory that a launch with these arguments needs.
    pub shared_bytes: fn(&A) -> u64,
    /// Threads per block in a launch with these arguments: [`THREADS`](crate::THREADS) for most kernels.
    pub threads: fn(&A) -> u32,
    /// The function that each thread runs.
    ///
    /// # Safety
    /// Pointers and lengths must be as documented on the arguments' fields.
    #[cfg(feature = "emulator")]
    pub body: unsafe fn(A),
}

#[cfg(feature = "emulator")]
impl<A: Arguments> Kernel<A> {
    /// Runs the kernel in the emulator over a grid of blocks.
    ///
    /// # Safety
    /// Pointers and lengths must be as documented on the arguments' fields. Accesses outside every live
    /// [`Buffer`](crate::device::Buffer) panic.
    pub unsafe fn emulate(&self, grid: (u32, u32), arguments: A) {
        let shared = u32::try_from((self.shared_bytes)(&arguments)).expect("shared memory is small");
        // SAFETY: the caller upholds `# Safety`: pointers and lengths are as the arguments' fields document.
        crate::device::emulate(grid, (self.threads)(&arguments), shared, || unsafe { (self.body)(arguments) });
    }
}

/// Declares an argument struct and its kernels: `entry => name_f32, name_f64, body, shared bytes;`, or, if the struct
/// has no `T`, `entry => name, body, shared bytes;`. Kernels whose block size is not [`THREADS`](crate::THREADS) add `,
/// threads` at the end of the entry.
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
                    // Not generic, so that the bodies are compiled once, here, and not in every crate that launches
                    // them.
                    unsafe fn single(a: $args<f32>) {
                        #[allow(dead_code)]
                        type T = f32;
                        // SAFETY: the caller upholds the body's `# Safety`: `a` is as its fields document.
                        unsafe { $body(a) }
                    }
                    unsafe fn double(a: $args<f64>) {
                        #[allow(dead_code)]
                        type T = f64;
                        // SAFETY: as for `single`.
                        unsafe { $body(a) }
                    }
                    if T::BYTES == 4 {
                        // SAFETY: `T` has 4 bytes, so it is `f32`, and both types are the same.
                        unsafe { core::mem::transmute::<unsafe fn($args<f32>), unsafe fn($args<T>)>(single) }
                    } else {
                        // SAFETY: `T` has 8 bytes, so it is `f64`, and both types are the same.
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
                // Compiled here alone, as `single` and `double`.
                #[cfg(feature = "emulator")]
                unsafe fn emulated(a: $args) {
                    // SAFETY: the caller upholds the body's `# Safety`: `a` is as its fields document.
                    unsafe { $body(a) }
                }
                let threads = kernels!(@threads $args $(, $threads)?);
                $crate::Kernel {
                    name: stringify!($entry),
                    shared_bytes: $shared,
                    threads,
                    #[cfg(feature = "emulator")]
                    body: emulated,
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
            // Arrays are passed as kernel parameters like any other type.
            #[allow(improper_ctypes_definitions)]
            #[unsafe(no_mangle)]
            unsafe extern "ptx-kernel" fn $name($($field: $type,)+) {
                // SAFETY: the host launches the kernel only with pointers and lengths as the fields document.
                unsafe { $body($args { $($field,)+ }) }
            }
        };
    };
}
