//! The targets of the kernels, and the translation of their text for each.
//!
//! Kernels are compiled once, in Hopper's instructions. For older devices a few of these are replaced by others when
//! the text is used, so that there is one text of each kernel.

use std::fmt::Write;

/// The kernels as the devices of one target load them.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The target's name.
    pub target: &'static str,
    /// Compute capability that the target needs: 10 times the major version plus the minor.
    pub capability: u32,
    /// Whether the kernels run only on that capability, and not on later ones.
    pub exact: bool,
    /// Major and minor version of PTX, which decides how old a driver may be.
    pub version: (u32, u32),
}

/// Turing and later; no tensor-core instructions.
const SM_75: Module = Module { target: "sm_75", capability: 75, exact: false, version: (6, 3) };

/// Ampere and later; `mma.sync` for fp16, TF32, BF16 and f64.
const SM_80: Module = Module { target: "sm_80", capability: 80, exact: false, version: (7, 0) };

/// Hopper only. The compiler's target.
const SM_90A: Module = Module { target: "sm_90a", capability: 90, exact: true, version: (8, 0) };

/// All modules, the best first.
pub static MODULES: [Module; 3] = [SM_90A, SM_80, SM_75];

/// Returns the best module for a device of this compute capability (90 for 9.0), or `None` below 7.5.
pub fn best(capability: u32) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.runs_on(capability))
}

/// In front of the name of the only target to which a line of a kernel's text applies.
pub const ONLY: &str = " // only ";

impl Module {
    /// Whether a device of this compute capability (90 for 9.0) can load the module.
    pub const fn runs_on(&self, capability: u32) -> bool {
        if self.exact { capability == self.capability } else { capability >= self.capability }
    }

    /// The directives in front of a kernel: PTX version and target.
    pub fn directives(&self) -> String {
        let Self { target, version: (major, minor), .. } = self;
        format!(".version {major}.{minor}\n.target {target}\n.address_size 64\n")
    }

    /// Translates a kernel's text, which is the compiler's, for the target.
    pub fn translated(&self, text: &str) -> String {
        // An f64 product becomes eight.
        let mut out = String::with_capacity(2 * text.len());
        for line in text.lines() {
            let (line, only) = line.split_once(ONLY).map_or((line, self.target), |(line, only)| (line, only));
            if only != self.target {
                continue;
            }
            if self.capability < SM_90A.capability {
                push_older(&mut out, line);
            } else {
                out.extend([line, "\n"]);
            }
        }
        out
    }
}

/// Adds a line as devices before Hopper, and the drivers that know only those, understand it.
fn push_older(out: &mut String, line: &str) {
    let instruction = line.trim_start();
    let operands = |of: &'static str| instruction.strip_prefix(of).map(|rest| rest.trim_start());
    // Every launch waits for the one before it.
    if instruction.starts_with("griddepcontrol.") {
        return;
    }
    if instruction.starts_with("mma.sync.aligned.m16n8k") && instruction.contains(".f64.f64.f64.f64 ") {
        return push_products(out, instruction);
    }
    // No cache policies.
    if let Some((register, _)) = operands("createpolicy.").and_then(|rest| rest.split_once(' ')?.1.split_once(',')) {
        writeln!(out, "\tmov.b64 {register}, 0;")
    } else if let Some((load, _)) = operands("ld.global.L2::cache_hint").and_then(|rest| rest.rsplit_once(',')) {
        writeln!(out, "\tld.global{load};")
    } else if let Some(upper) = operands("mov.b64").and_then(|rest| rest.strip_prefix("{_, ")) {
        // The upper half of a number.
        writeln!(out, "\t{{ .reg .b32 tmp; mov.b64 {{tmp, {upper} }}")
    } else {
        writeln!(out, "{line}")
    }
    .expect("a string takes all");
}

/// Adds the 8×8×4 steps of an f64 product of 16 rows: of each four columns first those of the upper eight rows.
fn push_products(out: &mut String, instruction: &str) {
    // `mma {c, c, c, c}, {a, ..}, {b, ..}, {c, c, c, c};` with two registers of A for each of B.
    let mut lists = instruction.split(['{', '}']).skip(1).step_by(2).map(|list| list.split(',').map(str::trim));
    let mut list = || lists.next().into_iter().flatten().collect::<Vec<_>>();
    let [c, a, b] = [list(), list(), list()];
    for (a, b) in a.chunks(2).zip(b) {
        for (a, c) in a.iter().zip(c.chunks(2)) {
            let c = c.join(",");
            writeln!(out, "\tmma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};")
                .expect("a string takes all");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(compiled: &str, ampere: &str) {
        assert_eq!(SM_80.translated(compiled), ampere);
        assert_eq!(SM_75.translated(compiled), ampere);
        assert_eq!(SM_90A.translated(compiled), compiled);
    }

    #[test]
    fn an_f64_product_becomes_its_steps_on_ampere() {
        let step = |c: &str, a: &str, b: &str| {
            format!("\tmma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};\n")
        };
        let [upper, lower] = ["%rd1,%rd2", "%rd3,%rd4"];
        check(
            "\tmma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%rd1,%rd2,%rd3,%rd4}, {%rd5,%rd6,%rd7,%rd8}, \
             {%rd9,%rd10}, {%rd1,%rd2,%rd3,%rd4};\n",
            &[
                step(upper, "%rd5", "%rd9"),
                step(lower, "%rd6", "%rd9"),
                step(upper, "%rd7", "%rd10"),
                step(lower, "%rd8", "%rd10"),
            ]
            .concat(),
        );
        let fp16 = "\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, \
                    {%r9,%r10}, {%r1,%r2,%r3,%r4};\n";
        check(fp16, fp16);
    }

    #[test]
    fn what_only_hopper_has_is_left_out_or_replaced() {
        check("\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n\tret;\n", "\tret;\n");
        check("\tcreatepolicy.fractional.L2::evict_last.b64 %rd1, 1.0;\n", "\tmov.b64 %rd1, 0;\n");
        check(
            "\tld.global.L2::cache_hint.v4.u32 {%r1,%r2,%r3,%r4}, [%rd2], %rd1;\n",
            "\tld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd2];\n",
        );
        check("\tmov.b64 \t{_, %r1}, %rd2;\n", "\t{ .reg .b32 tmp; mov.b64 {tmp, %r1}, %rd2; }\n");
    }

    #[test]
    fn a_line_for_one_target_is_only_for_that() {
        let text = ".maxntid 128, 1, 1 // only sm_90a\n.maxntid 256, 1, 1 // only sm_80\n{\n";
        assert_eq!(SM_90A.translated(text), ".maxntid 128, 1, 1\n{\n");
        assert_eq!(SM_80.translated(text), ".maxntid 256, 1, 1\n{\n");
        assert_eq!(SM_75.translated(text), "{\n");
    }

    #[test]
    fn the_best_module_is_chosen_by_capability() {
        let best = |capability| best(capability).map(|module| module.target);
        assert_eq!([best(70), best(75), best(80), best(86)], [None, Some("sm_75"), Some("sm_80"), Some("sm_80")]);
        assert_eq!([best(90), best(100)], [Some("sm_90a"), Some("sm_80")]);
    }
}
