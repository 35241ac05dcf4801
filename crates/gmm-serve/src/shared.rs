//! Shared memory: tensors of programs of the same user on this machine, which do not pass through a socket, by the
//! [extension of Triton](https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_shared_memory.md).
//!
//! A region is mapped when it is registered. Requests then name it, with an offset and a size, in place of data.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use gmm_host::Engine;
use gmm_host::products::PinnedMemory;
use memmap2::MmapRaw;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Refusal;

/// Regions that may be registered at a time.
const MOST: usize = 256;

/// The name of the extension in the server's metadata.
pub(crate) const EXTENSION: &str = "system_shared_memory";

/// A part of a shared memory object, mapped.
struct Region {
    key: String,
    offset: u64,
    /// Dropped before the map, which it needs.
    _pinned: Option<PinnedMemory>,
    map: MmapRaw,
}

/// Bytes of a region, which stays mapped while they are used.
struct Part {
    region: Arc<Region>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is within the map, which lives as long as `self`, and any byte is valid. As with any mapped file,
        // a program that writes meanwhile changes the numbers, and one that truncates the object ends this process with
        // SIGBUS: `--shared-memory` trusts the programs of the same user.
        unsafe { std::slice::from_raw_parts(self.region.map.as_ptr().add(self.range.start), self.range.len()) }
    }
}

/// Where a tensor is in place of the request or the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorRange {
    pub(crate) region: String,
    pub(crate) byte_size: usize,
    pub(crate) offset: usize,
}

impl TensorRange {
    /// The place that the parameters of a tensor name, if they name one.
    ///
    /// # Errors
    /// 400 if they name a region without a size, or the reverse.
    pub(crate) fn of(
        region: Option<String>,
        byte_size: Option<usize>,
        offset: Option<usize>,
    ) -> Result<Option<Self>, Refusal> {
        match (region, byte_size, offset) {
            (Some(region), Some(byte_size), offset) => {
                Ok(Some(Self { region, byte_size, offset: offset.unwrap_or(0) }))
            }
            (None, None, None) => Ok(None),
            _ => Err(Refusal::bad("shared memory needs both shared_memory_region and shared_memory_byte_size")),
        }
    }
}

/// What a client says of a region.
#[derive(Deserialize)]
struct Registration {
    key: String,
    #[serde(default)]
    offset: u64,
    byte_size: usize,
}

/// All regions by name; `None` if the server has no shared memory.
pub(crate) struct Regions {
    all: Option<RwLock<BTreeMap<String, Arc<Region>>>>,
    engine: Arc<dyn Engine>,
}

impl Regions {
    pub(crate) fn new(is_on: bool, engine: Arc<dyn Engine>) -> Self {
        Self { all: is_on.then(RwLock::default), engine }
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.all.is_some()
    }

    fn all(&self) -> Result<&RwLock<BTreeMap<String, Arc<Region>>>, Refusal> {
        self.all.as_ref().ok_or_else(|| Refusal::bad("this server has no shared memory: start it with --shared-memory"))
    }

    /// Maps a region and gives it a name.
    ///
    /// # Errors
    /// 400 if the object is not there or is another user's, if it is smaller than the region, or if the name is taken.
    pub(crate) fn register(&self, name: &str, body: &Bytes) -> Result<(), Refusal> {
        let all = self.all()?;
        let Registration { key, offset, byte_size } =
            serde_json::from_slice(body).map_err(|e| Refusal::bad(format!("the registration is not valid: {e}")))?;
        let named = |why: String| {
            let (name, key) = (gmm_model::shown(name), gmm_model::shown(&key));
            Refusal::bad(format!("region '{name}' of the shared memory '{key}': {why}"))
        };
        let has_room = |all: &BTreeMap<String, Arc<Region>>| match (all.contains_key(name), all.len() >= MOST) {
            (true, _) => Err(named("the name is registered already: unregister it first".to_owned())),
            (_, true) => Err(named(format!("{MOST} regions are registered: unregister some first"))),
            _ => Ok(()),
        };
        has_room(&all.read().unwrap_or_else(PoisonError::into_inner))?;
        let map = map(&key, offset, byte_size).map_err(named)?;
        // A GPU copies pinned memory without staging. Where it cannot be pinned, such as twice, it is staged. It takes a
        // while, so no lock is held, and others may have registered meanwhile.
        let multiplier = self.engine.multiplier();
        // SAFETY: the region drops the map after the pinned memory.
        let pinned = multiplier.and_then(|multiplier| unsafe { multiplier.pin(map.as_mut_ptr(), map.len()) });
        let region = Arc::new(Region { key: key.clone(), offset, _pinned: pinned.ok().flatten(), map });
        let mut all = all.write().unwrap_or_else(PoisonError::into_inner);
        has_room(&all)?;
        all.insert(name.to_owned(), region);
        Ok(())
    }

    /// Forgets a region, or all. Requests that use one keep it until they are answered.
    ///
    /// # Errors
    /// 400 if the server has no shared memory.
    pub(crate) fn unregister(&self, name: Option<&str>) -> Result<(), Refusal> {
        let mut all = self.all()?.write().unwrap_or_else(PoisonError::into_inner);
        match name {
            // As Triton does it, a name that is not registered is no error.
            Some(name) => drop(all.remove(name)),
            None => all.clear(),
        }
        Ok(())
    }

    /// What is registered under a name, or all.
    ///
    /// # Errors
    /// 400 for a name that is not registered.
    pub(crate) fn status(&self, name: Option<&str>) -> Result<Value, Refusal> {
        let all = self.all()?.read().unwrap_or_else(PoisonError::into_inner);
        let shown = |(name, region): (&String, &Arc<Region>)| json!({"name": name, "key": region.key, "offset": region.offset, "byte_size": region.map.len()});
        match name {
            None => Ok(all.iter().map(shown).collect()),
            Some(name) => match all.get_key_value(name) {
                Some(found) => Ok(vec![shown(found)].into()),
                None => Err(unknown(name)),
            },
        }
    }

    fn part(&self, place: &TensorRange) -> Result<Part, Refusal> {
        let TensorRange { region: name, byte_size, offset } = place;
        let found = self.all()?.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let region = found.ok_or_else(|| unknown(name))?;
        let range = offset.checked_add(*byte_size).map(|end| *offset..end);
        match range.filter(|range| range.end <= region.map.len()) {
            Some(range) => Ok(Part { region, range }),
            None => {
                let (name, all) = (gmm_model::shown(name), region.map.len());
                let message =
                    format!("region '{name}' has {all} bytes: {byte_size} from byte {offset} on are too many");
                Err(Refusal::bad(message))
            }
        }
    }

    /// The bytes of an input, where they are.
    ///
    /// # Errors
    /// 400 for a region that is not registered or too small.
    pub(crate) fn bytes(&self, place: &TensorRange) -> Result<Bytes, Refusal> {
        Ok(Bytes::from_owner(self.part(place)?))
    }

    /// Writes an output.
    ///
    /// # Errors
    /// As for [`bytes`](Self::bytes), also if it is longer than its place.
    pub(crate) fn write(&self, place: &TensorRange, bytes: &[u8]) -> Result<(), Refusal> {
        let part = self.part(place)?;
        if bytes.len() > part.range.len() {
            let (name, room, need) = (gmm_model::shown(&place.region), part.range.len(), bytes.len());
            return Err(Refusal::bad(format!("{room} bytes of region '{name}' are too few for an output of {need}")));
        }
        // SAFETY: the bytes are within the map, which is writable and lives as long as `part`, and no reference to them is
        // kept across a call: see `Part`.
        unsafe {
            let to = part.region.map.as_mut_ptr().add(part.range.start);
            std::ptr::copy(bytes.as_ptr(), to, bytes.len());
        }
        Ok(())
    }
}

fn unknown(name: &str) -> Refusal {
    Refusal::bad(format!("no region '{}' is registered", gmm_model::shown(name)))
}

/// Maps bytes of a shared memory object of this user.
#[cfg(target_os = "linux")]
fn map(key: &str, offset: u64, byte_size: usize) -> Result<MmapRaw, String> {
    use std::fs::File;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    let name = key.strip_prefix('/').unwrap_or(key);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err("the key must be '/' and letters, digits, '.', '_' and '-'".to_owned());
    }
    // Where the C library's `shm_open` has them. A link or a pipe of that name is not one, and is not waited for.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).write(true).custom_flags(flags).open(format!("/dev/shm/{name}"));
    let file = file.map_err(|error| error.to_string())?;
    let meta = file.metadata().map_err(|error| error.to_string())?;
    // SAFETY: the call has no conditions.
    let own = unsafe { libc::geteuid() };
    if !meta.is_file() || meta.uid() != own {
        return Err("it is not of the user of this server".to_owned());
    }
    let end = offset.checked_add(byte_size as u64);
    if byte_size == 0 || end.is_none_or(|end| end > meta.len()) {
        let bytes = meta.len();
        return Err(format!("{byte_size} bytes from byte {offset} on are not within its {bytes} bytes, or none"));
    }
    memmap2::MmapOptions::new().offset(offset).len(byte_size).map_raw(&file).map_err(|error| error.to_string())
}

#[cfg(not(target_os = "linux"))]
fn map(_key: &str, _offset: u64, _byte_size: usize) -> Result<MmapRaw, String> {
    Err("shared memory is for Linux only".to_owned())
}
