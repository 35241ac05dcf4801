//! Values in a memory-mapped temporary file, for tables beyond the memory limit.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use memmap2::{Mmap, MmapMut};

use crate::{Problem, atomic, memory};

/// Values in a mapped temporary file. The file has no name (on Windows it is deleted when it is closed), so nothing is
/// left however the process ends. Its blocks are reserved on the disk before they are written to: a disk that fills up
/// cannot end the process by a signal.
pub(crate) struct Spilled<T> {
    file: File,
    folder: PathBuf,
    map: MmapMut,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Spilled<T> {
    /// Writes `values` to a new file, with room for `capacity` values in all, at least one. `what` is for errors.
    ///
    /// # Errors
    /// [`Problem::Disk`] if the disk has no room or no file can be created; [`Problem::Memory`] if the address space
    /// does not suffice for the map.
    pub(crate) fn new(values: &[T], capacity: usize, what: &str) -> Result<Self, Problem> {
        let folder = folder();
        let bytes = bytes_of::<T>(capacity.max(1));
        let failed = |e: io::Error| refused(what, bytes, &folder, &e);
        check(what, bytes)?;
        let mut file = tempfile::tempfile_in(&folder).map_err(failed)?;
        extend(&mut file, 0, to_len(bytes)).map_err(failed)?;
        file.rewind().map_err(failed)?;
        file.write_all(cast_slice(values)).map_err(failed)?;
        // SAFETY: no other process can open the file, since it has no name (on Windows it is opened exclusively), and
        // this process changes it only through the map.
        let map = unsafe { MmapMut::map_mut(&file) }.map_err(|_| no_address_space(what, bytes))?;
        Ok(Self { file, folder, map, len: values.len(), of: PhantomData })
    }

    /// Number of values.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Number of values that there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.map.len() / size_of::<T>()
    }

    /// Makes room for `capacity` values in all. On failure nothing changes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn grow(&mut self, capacity: usize, what: &str) -> Result<(), Problem> {
        let (old, new) = (self.map.len() as u64, bytes_of::<T>(capacity));
        if new <= u128::from(old) {
            return Ok(());
        }
        let more = new - u128::from(old);
        if gmm_model::memory::address_space().is_some_and(|free| more > free.into()) {
            return Err(no_address_space(what, new));
        }
        if let Some(free) = atomic::free(&self.folder)
            && more > free
        {
            return Err(full(what, new, &self.folder, free + u128::from(old)));
        }
        extend(&mut self.file, old, to_len(new)).map_err(|e| refused(what, new, &self.folder, &e))?;
        self.remap(to_len(new) as usize).map_err(|_| no_address_space(what, new))
    }

    /// Sets the number of values, at most the capacity. New values hold anything.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "room for the values");
        self.len = len;
    }

    /// The map, read-only, of a file without spare room.
    ///
    /// # Errors
    /// Any error of the system.
    pub(crate) fn finish(mut self) -> io::Result<Mmap> {
        let bytes = (self.len * size_of::<T>()).max(1);
        if bytes < self.map.len() {
            self.remap(bytes)?;
            self.file.set_len(bytes as u64)?;
        }
        self.map.make_read_only()
    }

    #[cfg(target_os = "linux")]
    fn remap(&mut self, bytes: usize) -> io::Result<()> {
        // SAFETY: the file has as many bytes, and no view of the map exists, since `self` is borrowed mutably.
        unsafe { self.map.remap(bytes, memmap2::RemapOptions::new().may_move(true)) }
    }

    #[cfg(not(target_os = "linux"))]
    fn remap(&mut self, bytes: usize) -> io::Result<()> {
        // SAFETY: as in `new`; the old map is dropped before anything is written to the new one.
        self.map = unsafe { memmap2::MmapOptions::new().len(bytes).map_mut(&self.file) }?;
        Ok(())
    }
}

impl<T: Pod> std::ops::Deref for Spilled<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        cast_slice(&self.map[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> std::ops::DerefMut for Spilled<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        cast_slice_mut(&mut self.map[..self.len * size_of::<T>()])
    }
}

/// Checks that the disk has room for a temporary file, and the address space for its map.
///
/// # Errors
/// [`Problem::Disk`] or [`Problem::Memory`] with the bytes needed and free.
pub(crate) fn check(what: &str, bytes: u128) -> Result<(), Problem> {
    let folder = folder();
    if gmm_model::memory::address_space().is_some_and(|free| bytes > free.into()) {
        return Err(no_address_space(what, bytes));
    }
    match atomic::free(&folder) {
        Some(free) if bytes > free => Err(full(what, bytes, &folder, free)),
        _ => Ok(()),
    }
}

/// The folder of the temporary files in which tables beyond [`ReadOptions::memory`](crate::ReadOptions::memory) are:
/// `TMPDIR` if it is set, else the system's. If that is in memory, as `/tmp` often is, `/var/tmp` takes its place.
pub fn folder() -> PathBuf {
    let usual = std::env::temp_dir();
    let disk = Path::new("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && is_in_memory(&usual) && disk.is_dir() && !is_in_memory(disk) {
        return disk.to_owned();
    }
    usual
}

#[cfg(target_os = "linux")]
fn is_in_memory(folder: &Path) -> bool {
    // TMPFS_MAGIC and RAMFS_MAGIC of <linux/magic.h>.
    rustix::fs::statfs(folder).is_ok_and(|disk| [0x0102_1994, 0x8584_58f6].contains(&(disk.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
const fn is_in_memory(_folder: &Path) -> bool {
    false
}

/// Makes a file longer. The disk's blocks are reserved, by the system if the file system supports it, else by writing.
fn extend(file: &mut File, old: u64, new: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    loop {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        match fallocate(&*file, FallocateFlags::empty(), old, new - old) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => break,
            Err(e) => return Err(e.into()),
        }
    }
    file.seek(SeekFrom::Start(old))?;
    io::copy(&mut io::Read::take(io::repeat(0), new - old), file).map(drop)
}

const fn bytes_of<T>(count: usize) -> u128 {
    count as u128 * size_of::<T>() as u128
}

/// A length that the disk had room for, or that it will refuse.
fn to_len(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX).min(isize::MAX as u64)
}

fn full(what: &str, wanted: u128, folder: &Path, free: u128) -> Problem {
    Problem::Disk {
        what: what.to_owned(),
        wanted,
        folder: folder.into(),
        why: format!("{free} bytes are free there").into(),
    }
}

fn refused(what: &str, wanted: u128, folder: &Path, e: &io::Error) -> Problem {
    match (e.kind(), atomic::free(folder)) {
        (io::ErrorKind::StorageFull, Some(free)) => full(what, wanted, folder, free),
        _ => Problem::Disk { what: what.to_owned(), wanted, folder: folder.into(), why: e.to_string().into() },
    }
}

fn no_address_space(what: &str, wanted: u128) -> Problem {
    let free = gmm_model::memory::address_space().or_else(memory::available).unwrap_or(0);
    Problem::Memory { what: what.to_owned(), wanted, free: free.into() }
}
