//! Describes the hardware that an engine runs on: the GPU and its driver, or the processor, and the system.

use gmm_host::{Engine, cuda_report};

use crate::machine::{self, slug};

/// The name of a record's folder, and hardware facts for its head.
pub struct Hardware {
    /// The device's name as a folder name: `nvidia-h200`.
    pub slug: String,
    /// Names and values, one for each line of the head.
    pub facts: Vec<(&'static str, String)>,
}

/// Queries the engine, the driver and the system.
pub fn describe(engine: &dyn Engine) -> Hardware {
    let machine = machine::describe();
    let mut facts = vec![("engine", format!("{}: {}", engine.name(), engine.description()))];
    let mut folder = machine.slug.clone();
    if let Some(ordinal) = engine.name().strip_prefix("cuda:").and_then(|i| i.parse::<usize>().ok()) {
        let report = cuda_report();
        if let Some(device) = report.devices.iter().find(|device| device.ordinal == ordinal) {
            folder = slug(&device.name);
            facts.push(("gpu", device.to_string().replace('\n', "; ")));
        }
        facts.push(("driver", report.driver.unwrap_or_else(|| "unknown".to_owned())));
        // Clocks and power limit explain a speed; only the driver's own tool reports them.
        let query = "--query-gpu=driver_version,clocks.max.sm,clocks.max.memory,power.limit,ecc.mode.current";
        let device = format!("--id={ordinal}");
        facts.push(("nvidia-smi", machine::output("nvidia-smi", &[query, "--format=csv,noheader", &device])));
    }
    facts.extend(machine.facts());
    Hardware { slug: folder, facts }
}
