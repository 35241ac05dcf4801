//! The memory that this process can still allocate.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that this process can still allocate without swapping, if the system reports it (Linux): the minimum of the
/// memory available on the machine, in the process's control groups (versions 1 and 2, with all ancestors), and under
/// its limits of address space and data. File cache that the kernel can drop counts as free. Cost: reads a few small
/// files, about 0.1 ms.
pub fn available() -> Option<u64> {
    available_under(Path::new("/"))
}

/// Bytes of address space that this process can still use, for example to map a file, if it has such a limit (Linux).
pub fn address_space() -> Option<u64> {
    left(Path::new("/"), "Max address space", "VmSize:")
}

/// [`available`] with `root` in place of `/`.
fn available_under(root: &Path) -> Option<u64> {
    let machine = kib(&root.join("proc/meminfo"), "MemAvailable:");
    let limits = [("Max address space", "VmSize:"), ("Max data size", "VmData:")];
    let limits = limits.into_iter().map(|(limit, used)| left(root, limit, used));
    let groups = groups(root).into_iter().map(|(group, version)| free_in_group(&group, version));
    std::iter::once(machine).chain(limits).chain(groups).flatten().min()
}

/// Bytes left under a limit of the process; `None` if it has no such limit.
fn left(root: &Path, limit: &str, used: &str) -> Option<u64> {
    let limit = number(&root.join("proc/self/limits"), limit)?;
    Some(limit.saturating_sub(kib(&root.join("proc/self/status"), used).unwrap_or(0)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The directories of the process's memory control groups, each with all its ancestors.
fn groups(root: &Path) -> Vec<(PathBuf, Version)> {
    let (Ok(mounts), Ok(own)) =
        (fs::read_to_string(root.join("proc/self/mountinfo")), fs::read_to_string(root.join("proc/self/cgroup")))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    // `31 23 0:28 ROOT MOUNT OPTIONS .. - TYPE SOURCE OPTIONS`
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (left, right): (Vec<_>, Vec<_>) = (left.split(' ').collect(), right.split(' ').collect());
        let (&[_, _, _, inner, mount, ..], &[kind, _, options, ..]) = (&left[..], &right[..]) else { continue };
        let version = match kind {
            "cgroup2" => Version::V2,
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::V1,
            _ => continue,
        };
        // `4:memory:PATH`, in version 2 `0::PATH`.
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let mine = match version {
                Version::V1 => controllers.split(',').any(|controller| controller == "memory"),
                Version::V2 => controllers.is_empty(),
            };
            mine.then_some(path)
        });
        let path = path.unwrap_or("/");
        // In a container the group itself may be the root of the mount.
        let below = path.strip_prefix(inner).unwrap_or(path).trim_matches('/');
        let mount = root.join(mount.trim_start_matches('/'));
        let folder = mount.join(below);
        let ancestors = folder.ancestors().take_while(|folder| folder.starts_with(&mount));
        found.extend(ancestors.map(|folder| (folder.to_owned(), version)));
    }
    found
}

/// Bytes left under a group's limit; `None` if it has no limit.
fn free_in_group(group: &Path, version: Version) -> Option<u64> {
    let (limit, usage, cache) = match version {
        Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        Version::V2 => ("memory.max", "memory.current", "inactive_file"),
    };
    let limit = number(&group.join(limit), "")?;
    let reclaimable = number(&group.join("memory.stat"), cache).unwrap_or(0);
    Some(limit.saturating_sub(number(&group.join(usage), "")?.saturating_sub(reclaimable)))
}

/// The first number after `label` on the first line that starts with it; `None` if there is none (`max`, `unlimited`).
fn number(path: &Path, label: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(label))?.split_ascii_whitespace().next()?.parse().ok()
}

fn kib(path: &Path, label: &str) -> Option<u64> {
    Some(number(path, label)?.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// The available memory of a system with these files.
    fn available_with(files: &[(&str, String)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available_under(root.path())
    }

    /// The files of a machine with 8 GiB available, with the given mounts and control groups of the process.
    fn machine(mountinfo: &str, cgroup: &str) -> Vec<(&'static str, String)> {
        vec![
            ("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:  8388608 kB\n".to_owned()),
            (
                "proc/self/limits",
                "Limit  Soft Limit  Hard Limit  Units\nMax address space  unlimited unlimited\n".into(),
            ),
            ("proc/self/status", "VmSize:  1048576 kB\nVmData: 524288 kB\n".to_owned()),
            ("proc/self/mountinfo", mountinfo.to_owned()),
            ("proc/self/cgroup", cgroup.to_owned()),
        ]
    }

    const V1: &str = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const V2: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn without_limits_it_is_what_the_machine_has_available() {
        assert_eq!(available_with(&machine("", "")), Some(8 * GIB));
        assert_eq!(available_with(&[]), None);
        if cfg!(target_os = "linux") {
            assert!(available().is_some_and(|free| free > 1 << 20));
        }
    }

    #[test]
    fn limits_of_address_space_and_data_count_less_what_is_mapped() {
        let with = |limits: &str| {
            let mut files = machine("", "");
            files[1].1 = limits.to_owned();
            available_with(&files)
        };
        assert_eq!(with("Max address space   3221225472   unlimited  bytes\n"), Some(2 * GIB));
        assert_eq!(with("Max data size   1073741824   unlimited  bytes\n"), Some(GIB / 2));
        assert_eq!(with("Max address space   1024   1024  bytes\n"), Some(0));
    }

    #[test]
    fn a_group_of_version_2_counts_less_its_usage_without_its_file_cache() {
        let mut files = machine(V2, "0::/user/job\n");
        files.push(("sys/fs/cgroup/user/job/memory.max", (4 * GIB).to_string()));
        files.push(("sys/fs/cgroup/user/job/memory.current", (3 * GIB).to_string()));
        files.push(("sys/fs/cgroup/user/job/memory.stat", format!("anon 5\ninactive_file {}\n", 2 * GIB)));
        assert_eq!(available_with(&files), Some(3 * GIB));
        // An ancestor may have a lower limit.
        files.push(("sys/fs/cgroup/user/memory.max", (2 * GIB).to_string()));
        files.push(("sys/fs/cgroup/user/memory.current", GIB.to_string()));
        assert_eq!(available_with(&files), Some(GIB));
    }

    #[test]
    fn a_group_without_a_limit_does_not_count() {
        let mut files = machine(V2, "0::/\n");
        files.push(("sys/fs/cgroup/memory.max", "max\n".to_owned()));
        files.push(("sys/fs/cgroup/memory.current", "5\n".to_owned()));
        assert_eq!(available_with(&files), Some(8 * GIB));
    }

    #[test]
    fn a_group_of_version_1_counts_and_so_do_its_ancestors() {
        let mut files = machine(V1, "9:name=systemd:/\n4:cpu,memory:/box/job\n0::/\n");
        files.push(("sys/fs/cgroup/memory/box/job/memory.limit_in_bytes", "9223372036854771712\n".to_owned()));
        files.push(("sys/fs/cgroup/memory/box/job/memory.usage_in_bytes", GIB.to_string()));
        assert_eq!(available_with(&files), Some(8 * GIB));
        files.push(("sys/fs/cgroup/memory/box/memory.limit_in_bytes", (2 * GIB).to_string()));
        files.push(("sys/fs/cgroup/memory/box/memory.usage_in_bytes", (2 * GIB).to_string()));
        files.push(("sys/fs/cgroup/memory/box/memory.stat", format!("total_inactive_file {GIB}\n")));
        assert_eq!(available_with(&files), Some(GIB));
    }

    #[test]
    fn a_container_whose_group_is_the_root_of_the_mount_is_limited_by_it() {
        for mount in [
            "32 31 0:29 /docker/abc /sys/fs/cgroup/memory ro master:1 - cgroup cgroup rw,memory\n",
            "32 31 0:29 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
        ] {
            let mut files = machine(mount, "4:memory:/docker/abc\n");
            files.push(("sys/fs/cgroup/memory/memory.limit_in_bytes", GIB.to_string()));
            files.push(("sys/fs/cgroup/memory/memory.usage_in_bytes", "0".to_owned()));
            assert_eq!(available_with(&files), Some(GIB), "{mount}");
        }
    }
}
