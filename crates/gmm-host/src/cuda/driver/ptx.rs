//! Which kernel module a device uses, and why.

use gmm_kernels::ptx::{MODULES, Module};

use crate::Error;

/// The lowest compute capability on which a module runs: Turing.
const LOWEST: (u32, u32) = (7, 5);

/// Whether a device of this compute capability runs the module.
const fn runs_on(module: &Module, (major, minor): (u32, u32)) -> bool {
    module.runs_on(10 * major + minor)
}

/// The oldest driver that can read a module, as `cuDriverGetVersion` encodes it: `1000*major + 10*minor` of CUDA.
const fn driver(module: &Module) -> u32 {
    driver_for(module.version)
}

/// Drivers before CUDA 11 lack functions that are called here.
const OLDEST: u32 = 11_000;

/// The CUDA version whose driver first supported a PTX version, from the release table of the PTX manual.
const fn driver_for(version: (u32, u32)) -> u32 {
    let driver = match version {
        (..=6, _) => OLDEST,
        (7, minor) => 11_000 + 10 * minor,
        (8, minor @ 0..=5) => 12_000 + 10 * minor,
        // PTX 8.6 came with CUDA 12.7; CUDA 12.6 brought no new version.
        (8, minor) => 12_000 + 10 * (minor + 1),
        (major, minor) => 1000 * (major + 4) + 10 * minor,
    };
    if driver < OLDEST { OLDEST } else { driver }
}

/// The oldest driver with which any module runs on any device.
pub(crate) fn oldest_driver() -> u32 {
    MODULES.iter().map(driver).min().unwrap_or(OLDEST)
}

/// `12.4` for 12040.
pub(crate) fn version_text(driver: u32) -> String {
    format!("{}.{}", driver / 1000, driver % 1000 / 10)
}

/// A module, and the reason for choosing it.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) module: &'static Module,
    pub(crate) reason: String,
}

/// Chooses the best module for a device of `capability` with a driver of version `installed`.
///
/// # Errors
/// [`Error::Device`], which says what is supported, or which driver is needed.
pub(crate) fn choose(capability: (u32, u32), installed: u32) -> Result<Choice, Error> {
    choose_among(&MODULES, capability, installed)
}

/// Returns the module of the given name, if the device runs it.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn named(name: &str, capability: (u32, u32)) -> Result<Choice, Error> {
    let module = MODULES.iter().find(|m| m.target == name && runs_on(m, capability));
    let (major, minor) = capability;
    module.map(|module| Choice { module, reason: "asked for".to_owned() }).ok_or_else(|| {
        Error::Device(format!(
            "no module {name} for compute capability {major}.{minor}: the modules are sm_75, sm_80, sm_90a"
        ))
    })
}

fn choose_among(modules: &'static [Module], capability: (u32, u32), installed: u32) -> Result<Choice, Error> {
    let (major, minor) = capability;
    let fits = || modules.iter().filter(|m| runs_on(m, capability));
    let Some(best) = fits().next() else {
        return Err(Error::Device(format!(
            "compute capability {major}.{minor} is too low: {}.{} (Turing) or later is supported",
            LOWEST.0, LOWEST.1
        )));
    };
    let found = version_text(installed);
    let mut reason = format!("compute capability {major}.{minor}");
    if driver(best) > installed {
        reason.push_str(&format!("; {} needs a driver for CUDA {}", best.target, version_text(driver(best))));
    }
    match fits().find(|m| driver(m) <= installed) {
        Some(module) => Ok(Choice { module, reason }),
        None => {
            let least = fits().map(driver).min().unwrap_or(OLDEST);
            Err(Error::Device(format!(
                "the NVIDIA driver is too old for this program's kernels: it reads PTX up to CUDA {found}'s, they need \
                 CUDA {}: update the NVIDIA driver",
                version_text(least)
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static MADE_UP: [Module; 3] = [
        Module { target: "sm_90a", capability: 90, exact: true, version: (8, 0) },
        Module { target: "sm_80", capability: 80, exact: false, version: (7, 1) },
        Module { target: "sm_75", capability: 75, exact: false, version: (6, 3) },
    ];

    fn check(capability: (u32, u32), installed: u32, want: &str) {
        let choice = choose_among(&MADE_UP, capability, installed).unwrap();
        assert_eq!(choice.module.target, want, "{capability:?} {installed}");
    }

    #[test]
    fn each_device_gets_the_best_module_that_it_runs() {
        check((7, 5), 13_000, "sm_75");
        check((8, 0), 13_000, "sm_80");
        check((8, 9), 13_000, "sm_80");
        check((9, 0), 13_000, "sm_90a");
        // Blackwell does not run `sm_90a`, which has Hopper-only features.
        check((10, 0), 13_000, "sm_80");
        check((12, 1), 13_000, "sm_80");
    }

    #[test]
    fn an_old_driver_gets_the_module_that_it_reads() {
        check((9, 0), 11_080, "sm_80");
        check((9, 0), 11_000, "sm_75");
        let choice = choose_among(&MADE_UP, (9, 0), 11_080).unwrap();
        assert!(choice.reason.contains("sm_90a needs a driver for CUDA 12.0"), "{}", choice.reason);
    }

    #[test]
    fn a_driver_older_than_every_module_is_told_what_is_needed() {
        static NEWER: [Module; 1] = [Module { target: "sm_80", capability: 80, exact: false, version: (8, 7) }];
        let text = choose_among(&NEWER, (8, 6), 12_040).unwrap_err().to_string();
        assert!(text.contains("CUDA 12.4's") && text.contains("need CUDA 12.8"), "{text}");
    }

    #[test]
    fn a_device_before_turing_is_told_what_is_supported() {
        let text = choose_among(&MADE_UP, (7, 0), 13_000).unwrap_err().to_string();
        assert!(text.contains("7.0 is too low: 7.5 (Turing) or later"), "{text}");
    }

    #[test]
    fn versions_of_ptx_map_to_drivers() {
        for (ptx, driver) in [((6, 3), 11_000), ((7, 0), 11_000), ((7, 8), 11_080), ((8, 0), 12_000), ((8, 5), 12_050)]
        {
            assert_eq!(driver_for(ptx), driver);
        }
        for (ptx, driver) in [((8, 7), 12_080), ((8, 8), 12_090), ((9, 0), 13_000), ((9, 1), 13_010)] {
            assert_eq!(driver_for(ptx), driver);
        }
    }
}
