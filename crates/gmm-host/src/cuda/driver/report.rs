//! A report for users: which devices there are, which module each runs, and what is missing.

use cust::context::Context;
use cust::device::Device;

use super::device::{Facts, count, start};
use super::ptx::{self, version_text};
use super::{fault, table};
use crate::Error;
use crate::described::{CudaDevice, CudaReport};

/// Lists the CUDA devices. Opens each briefly to query its free memory. Never fails: problems are part of the report.
pub fn cuda_report() -> CudaReport {
    let mut report = CudaReport {
        driver: None,
        library: table::library_path(),
        problem: None,
        visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        devices: Vec::new(),
    };
    let version = match start() {
        Ok(version) => version,
        Err(error) => {
            report.library = table::library_path();
            report.problem = Some(error.to_string());
            return report;
        }
    };
    report.library = table::library_path();
    report.driver = Some(version_text(version));
    let listed = count().and_then(|n| (0..n).map(|ordinal| list(ordinal, version)).collect());
    match listed {
        Ok(devices) => report.devices = devices,
        Err(error) => report.problem = Some(error.to_string()),
    }
    if report.problem.is_none() && report.devices.iter().all(|d| d.module.is_none()) {
        report.problem = Some("no device can run this program's kernels".to_owned());
    }
    report
}

fn list(ordinal: usize, driver: u32) -> Result<CudaDevice, Error> {
    let device = Device::get_device(ordinal as u32).map_err(|e| fault::error("a device's handle", e))?;
    let facts = Facts::of(device)?;
    let choice = ptx::choose(facts.capability, driver);
    let free = choice.is_ok().then(|| {
        let _context = Context::new(device).ok()?;
        Some(cust::memory::mem_get_info().ok()?.0 as u64)
    });
    table::take_failure();
    Ok(CudaDevice {
        ordinal,
        name: facts.name,
        capability: facts.capability,
        memory_total: facts.memory,
        memory_free: free.flatten(),
        module: choice.as_ref().ok().map(|c| c.module.target.to_owned()),
        reason: choice.map_or_else(|e| e.to_string(), |c| c.reason),
    })
}
