//! What can be missing on a machine, and the error texts for it.

use super::*;
use crate::cuda::driver::table::INSTEAD;

#[test]
fn row_60_without_a_driver_cuda_is_an_error_and_auto_takes_the_cpu() {
    INSTEAD.set(Some(None));
    let error = text(Device::Cuda(0).open(1));
    assert!(error.contains("no NVIDIA driver") && error.contains("install"), "{error}");
    let opened = Device::Auto.open(1).unwrap();
    assert_eq!(opened.engine.name(), "cpu");
    assert!(opened.reason.contains("no NVIDIA driver"), "{}", opened.reason);
    let report = cuda_report();
    assert!(report.driver.is_none() && report.to_string().contains("missing: no NVIDIA driver"), "{report}");
    INSTEAD.set(None);
}

fn refused(machine: Machine, ordinal: usize, words: &[&str]) {
    let fake = Fake::install(machine);
    let error = text(CudaEngine::new(ordinal));
    for word in words.iter().chain(&[format!("cuda:{ordinal}").as_str()]) {
        assert!(error.contains(word), "'{word}' in: {error}");
    }
    let opened = Device::Auto.open(1).unwrap();
    assert!(ordinal > 0 || opened.engine.name() == "cpu");
    drop(opened);
    fake.0.assert_clean(&error);
}

#[test]
fn row_61_the_toolkits_stub_is_recognised() {
    refused(Machine { init: code::STUB_LIBRARY, ..Machine::default() }, 0, &["stub", "LD_LIBRARY_PATH"]);
}

#[test]
fn row_62_an_old_driver_is_told_from_what_is_needed() {
    refused(Machine { version: 10_020, ..Machine::default() }, 0, &["too old", "CUDA 10.2", "update"]);
}

#[test]
fn row_65_no_device_says_where_to_look() {
    refused(Machine { init: code::NO_DEVICE, ..Machine::default() }, 0, &["CUDA_VISIBLE_DEVICES", "nvidia-smi"]);
    refused(Machine { devices: 0, ..Machine::default() }, 0, &["no CUDA device is visible", "CUDA_VISIBLE_DEVICES"]);
}

#[test]
fn row_65_an_ordinal_that_is_not_there_says_which_are() {
    refused(Machine::default(), 3, &["no such device", "only cuda:0 is visible"]);
    refused(Machine { devices: 2, ..Machine::default() }, 2, &["only cuda:0 to cuda:1 are visible"]);
}

#[test]
fn row_64_a_device_before_turing_is_refused() {
    refused(Machine { capability: (6, 1), ..Machine::default() }, 0, &["6.1 is too low", "7.5"]);
}

#[test]
fn row_63_a_module_that_the_driver_does_not_read_asks_for_a_newer_driver() {
    let machine = Machine { load: code::UNSUPPORTED_PTX_VERSION, ..Machine::default() };
    refused(machine, 0, &["loading kernel", "of module sm_90a", "update the NVIDIA driver"]);
    refused(Machine { load: code::INVALID_PTX, ..Machine::default() }, 0, &["update the NVIDIA driver"]);
}

#[test]
fn the_report_lists_devices_and_modules() {
    let fake = Fake::install(Machine { capability: (8, 6), ..Machine::default() });
    let report = cuda_report();
    assert_eq!(report.problem, None);
    let device = &report.devices[0];
    assert_eq!((device.module.as_deref(), device.memory_free), (Some("sm_80"), Some(1 << 30)));
    let text = report.to_string();
    assert!(text.contains("cuda:0: Made-up GPU, compute capability 8.6, 1.0 GiB"), "{text}");
    fake.0.assert_clean("report");
    drop(fake);
    let fake = Fake::install(Machine { capability: (5, 2), ..Machine::default() });
    assert!(cuda_report().problem.unwrap().contains("no device can run this program"));
    fake.0.assert_clean("report");
}

#[test]
fn a_module_can_be_asked_for() {
    let _fake = Fake::install(Machine::default());
    assert!(CudaEngine::with_module(0, "sm_75").unwrap().description().contains("module sm_75 (asked for)"));
    assert!(text(CudaEngine::with_module(0, "sm_100")).contains("no module sm_100"));
}

#[test]
fn an_engine_says_what_it_is() {
    let _fake = Fake::install(Machine::default());
    let opened = Device::Auto.open(1).unwrap();
    assert_eq!((opened.engine.name().as_str(), opened.reason.as_str()), ("cuda:0", "it is the first GPU"));
    let text = opened.engine.description();
    assert!(text.contains("Made-up GPU, module sm_90a (compute capability 9.0), driver for CUDA 13.0"), "{text}");
}
