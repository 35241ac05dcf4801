//! Replays fuzz inputs in the tests of the crates whose readers are fuzzed.

use std::path::Path;

/// All committed inputs of a target.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let folders = ["seeds", "regressions"].map(|folder| fuzz.join(folder).join(target));
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{target} has no inputs");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Runs the inputs, then `GMM_MUTATIONS` random mutations of them, which are the same in every run.
pub(crate) fn replay(target: &str, run: fn(&[u8])) {
    let inputs = inputs(target);
    inputs.iter().for_each(|bytes| run(bytes));
    let count = std::env::var("GMM_MUTATIONS").map_or(2000, |n| n.parse().expect("a number"));
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        // xorshift64: any generator will do.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below.max(1)
    };
    for _ in 0..count {
        let mut bytes = inputs[random(inputs.len())].clone();
        for _ in 0..=random(4) {
            mutate(&mut bytes, &inputs, &mut random);
        }
        // The failing input is saved, so that it can be added to regressions/.
        if std::panic::catch_unwind(|| run(&bytes)).is_err() {
            let path = std::env::temp_dir().join(format!("gmm-{target}-found"));
            std::fs::write(&path, &bytes).unwrap();
            panic!("{target}: an input that fails is in {}", path.display());
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, inputs: &[Vec<u8>], random: &mut impl FnMut(usize) -> usize) {
    const WORDS: [&[u8]; 16] = [
        b"\"",
        b",",
        b"\n",
        b"\r",
        b"-",
        b"NaN",
        b"1e999",
        b"null",
        b"[",
        b"{",
        b"}",
        b"\t",
        b";",
        b" ",
        b"\xff\xff\xff\xff",
        b"9223372036854775807",
    ];
    let at = random(bytes.len() + 1);
    let to = (at + random(16)).min(bytes.len());
    match random(6) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random(8),
        1 if at < bytes.len() => bytes[at] = random(256) as u8,
        2 => drop(bytes.drain(at..to)),
        3 => drop(bytes.splice(at..to, WORDS[random(WORDS.len())].iter().copied())),
        4 => {
            let other = &inputs[random(inputs.len())];
            let from = random(other.len() + 1);
            let piece = &other[from..(from + random(64)).min(other.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
        _ => bytes.truncate(to),
    }
}
