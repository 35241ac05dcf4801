//! The addresses of `gmm serve` against its OpenAPI document, by schemathesis: generated requests, right and wrong ones, must
//! get only documented statuses, types and bodies. `GMM_SCHEMATHESIS` is the path of that program.

use std::process::Command;

use crate::cli_page::served;

/// Requests for each address in the phase of random ones; the systematic ones are some hundreds.
const REQUESTS: &str = "15";

#[test]
fn generated_requests_get_documented_answers() {
    let Some(program) = std::env::var_os("GMM_SCHEMATHESIS") else {
        eprintln!("skipped: GMM_SCHEMATHESIS names no program; pip install schemathesis");
        return;
    };
    let (folder, server) = served();
    folder.write("schemathesis.toml", "[parameters]\n\"path.name\" = \"iris\"\n\"path.version\" = 1\n");
    let document = format!("http://{}/openapi.json", server.address);
    let mut command = Command::new(program);
    command.current_dir(folder.path("")).args(["--config-file", "schemathesis.toml", "run", &document]);
    command.args(["--phases", "coverage,fuzzing", "--max-examples", REQUESTS, "--seed", "1"]);
    // The document cannot say that a row must have as many values as the model has columns, so some requests that it allows
    // are refused.
    command.args(["--exclude-checks", "positive_data_acceptance", "--warnings", "off", "--no-color"]);
    command.args(["--generation-database", "none"]);
    let output = command.output().expect("schemathesis starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("No issues found"), "{text}");
    // The addresses of the model were reached, not only refused as unknown.
    let metrics =
        Command::new("curl").args(["-s", &format!("http://{}/metrics", server.address)]).output().expect("curl");
    let metrics = String::from_utf8(metrics.stdout).expect("text");
    let answered = |status: &str| {
        metrics
            .lines()
            .any(|line| line.contains("gmm_requests_total") && line.contains(status) && !line.ends_with(" 0"))
    };
    assert!(answered("2xx") && answered("4xx"), "{metrics}");
}
