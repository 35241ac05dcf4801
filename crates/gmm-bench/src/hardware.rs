//! What engines ran on: the GPU and its driver, or the processor, and the system.

use gmm_host::{Engine, cuda_report};

use crate::machine::{self, Machine, slug};

/// For the record's folder and its head.
pub struct Hardware {
    /// The device's name as a folder: `nvidia-h200`.
    pub slug: String,
    /// Facts, one for each line of the head.
    pub facts: Vec<(&'static str, String)>,
}

/// Asks the engine, the driver and the system.
pub fn describe(engine: &dyn Engine) -> Hardware {
    let Machine { slug: processor_slug, processor, cores, flags, system, load, .. } = machine::describe();
    let mut facts = vec![("engine", format!("{}: {}", engine.name(), engine.description()))];
    let mut folder = processor_slug;
    if let Some(ordinal) = engine.name().strip_prefix("cuda:").and_then(|i| i.parse::<usize>().ok()) {
        let report = cuda_report();
        if let Some(device) = report.devices.iter().find(|device| device.ordinal == ordinal) {
            folder = slug(&device.name);
            facts.push(("gpu", device.to_string().replace('\n', "; ")));
        }
        facts.push(("driver", report.driver.unwrap_or_else(|| "unknown".to_owned())));
        // Clocks and power explain a speed; only the driver's own tool tells them.
        let query = "--query-gpu=driver_version,clocks.max.sm,clocks.max.memory,power.limit,ecc.mode.current";
        let device = format!("--id={ordinal}");
        facts.push(("nvidia-smi", machine::output("nvidia-smi", &[query, "--format=csv,noheader", &device])));
    }
    facts.push(("processor", format!("{processor}, {cores} cores")));
    facts.push(("instructions", flags));
    facts.push(("system", format!("{system}, load {load}")));
    Hardware { slug: folder, facts }
}
