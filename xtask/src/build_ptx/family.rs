//! Splits a module into one file per family of kernels, so that a change to a kernel changes only the file of its
//! family.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use gmm_kernels::Signature;

/// Families by prefixes of kernel names. The longest matching prefix decides; a kernel without a match belongs to the
/// family of the first word of its name. `fused_full` is divided into several families, because a file should have less
/// than 4 MB.
const FAMILIES: [(&str, &str); 38] = [
    ("add_centre_", "seeding"),
    ("chunked_f64_", "chunked_f64"),
    ("chunked_fp16_", "chunked_fp16"),
    ("chunked_half_", "chunked_split_fp16"),
    ("chunked_split_fp16_", "chunked_split_fp16"),
    ("draw_", "seeding"),
    ("e_step_", "e_step"),
    ("finish_", "products"),
    ("fixed_point_", "fixed_point"),
    ("forms_", "products"),
    ("fused_full_1_", "fused_full_1"),
    ("fused_full_2_", "fused_full_2"),
    ("fused_full_3_", "fused_full_3"),
    ("fused_full_4_", "fused_full_4"),
    ("fused_full_5_", "fused_full_5"),
    ("fused_full_6_", "fused_full_6"),
    ("fused_full_7_", "fused_full_7"),
    ("fused_full_8_", "fused_full_8"),
    ("fused_full_9_", "fused_full_9"),
    ("fused_full_10_", "fused_full_10"),
    ("fused_full_and_one_", "fused_full_and_one"),
    ("fused_linear_", "fused_linear"),
    ("fused_squares_", "fused_squares"),
    ("log_likelihood_", "log_likelihood"),
    ("lower_", "seeding"),
    ("mix_", "mixing"),
    ("multiply_", "products"),
    ("nearest_", "seeding"),
    ("pack_", "products"),
    ("pick_", "tile"),
    ("potentials_", "seeding"),
    ("select_", "products"),
    ("single_mixture_", "single_mixture"),
    ("small_d_", "small_d"),
    ("split_", "products"),
    ("tile_", "tile"),
    ("untile_", "tile"),
    ("wgmma_fixed_point_", "fixed_point"),
];

/// The family of a kernel; also the name of its file.
fn family(kernel: &str) -> &str {
    let listed = FAMILIES.iter().filter(|(prefix, _)| kernel.starts_with(prefix));
    let longest = listed.max_by_key(|(prefix, _)| prefix.len()).map(|(_, family)| *family);
    longest.unwrap_or_else(|| kernel.split('_').next().unwrap_or(kernel))
}

/// The start of a kernel, with the preceding line break.
const ENTRY: &str = "\n.visible .entry ";

/// The end of a kernel.
const END: &str = "\n}\n";

/// The kernels of a module by name.
///
/// Numbers that the compiler counts within the module are removed, so that the text of a kernel does not depend on
/// other kernels.
fn kernels(module: &str) -> Result<BTreeMap<&str, String>> {
    let kernel = |part| {
        let name = str::split(part, '(').next().unwrap_or_default();
        let text = [&ENTRY[1..], part.trim_end(), "\n"].concat();
        if text.find(END).is_none_or(|end| end + END.len() != text.len()) {
            bail!("{name}: the PTX has other content than kernels after its first kernel");
        }
        Ok((name, renumbered(&text)))
    };
    module.split(ENTRY).skip(1).map(kernel).collect()
}

/// The declarations of a family's file, and its kernels.
pub(super) fn parts(file: &str) -> (BTreeSet<&str>, &str) {
    let start = file.find(ENTRY).map_or(file.len(), |at| at + 1);
    (file[..start].lines().filter(|line| line.ends_with(';')).collect(), &file[start..])
}

/// Splits the module into one per family and oldest target, by path: `sm_80/update.ptx`. Each has the declarations that
/// its kernels use.
///
/// Errors if the kernels are not those of the signatures.
pub(super) fn split(module: &str, signatures: &[Signature]) -> Result<BTreeMap<String, String>> {
    let head = module.split(ENTRY).next().unwrap_or_default();
    let (directives, declarations): (Vec<&str>, Vec<&str>) = head
        .lines()
        .partition(|line| [".version", ".target", ".address_size"].iter().any(|directive| line.starts_with(directive)));
    let mut kernels = kernels(module)?;
    let mut families: BTreeMap<(&str, &str), BTreeMap<&str, String>> = BTreeMap::new();
    for signature in signatures {
        let name = signature.name;
        let text = kernels.remove(name).with_context(|| format!("signature.rs has {name}, but the PTX does not"))?;
        families.entry((signature.oldest_target(), family(name))).or_default().insert(name, text);
    }
    ensure!(kernels.is_empty(), "signature.rs does not have {:?}", kernels.keys());
    families
        .into_iter()
        .map(|((target, family), kernels)| {
            let mut text = format!(
                "// Kernels of gmm-kernels: {family}, for {target} and later, as for sm_90a. Made by `cargo xtask \
                 build-ptx`; do not edit.\n"
            );
            directives.iter().for_each(|line| text.extend([line, "\n"]));
            for declaration in &declarations {
                let declaration = renumbered(declaration);
                let symbol = symbol(&declaration)?;
                if kernels.values().any(|kernel| kernel.contains(symbol)) {
                    text.extend([&declaration, "\n"]);
                }
            }
            text.extend(kernels.into_values());
            Ok((format!("{target}/{family}.ptx"), text))
        })
        .collect()
}

/// The name in the declaration of an array, such as `.extern .shared .align 16 .b8 dynamic_shared[];`.
fn symbol(declaration: &str) -> Result<&str> {
    let name = declaration.split_once('[').and_then(|(before, _)| before.split_whitespace().last());
    name.with_context(|| format!("the PTX has a declaration that is not an array: '{declaration}'"))
}

/// Prefixes of names that the compiler numbers by the kernel's position in the module: labels, and the stack frame.
const NUMBERED: [&str; 2] = ["$L__BB", "__local_depot"];

/// The part of a mangled constant's name after the hash of the crate and its features, as in
/// `_RNvNtCs5F1of8gU43Z_11gmm_kernels4math5TABLE`.
const CRATE: &str = "_11gmm_kernels";

/// The text of a kernel or declaration without the module's numbers and hashes.
fn renumbered(text: &str) -> String {
    let mut text = text.to_owned();
    for prefix in NUMBERED {
        let mut pieces = text.split(prefix);
        let mut out = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            out.extend([prefix, "0", piece.trim_start_matches(|c: char| c.is_ascii_digit())]);
        }
        text = out;
    }
    let mut pieces = text.split(CRATE);
    let mut out = String::with_capacity(text.len());
    let mut piece = pieces.next().unwrap_or_default();
    for next in pieces {
        let name = piece.rfind("_R").unwrap_or(piece.len());
        let path = piece[name..].find("Cs").map_or(piece.len(), |at| name + at);
        // The mangling scheme also permits a crate without a hash.
        out.extend([&piece[..path], "C", &CRATE[1..]]);
        piece = next;
    }
    out + piece
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_counts_and_then_the_first_word() {
        for (kernel, want) in [
            ("fused_full_1_13", "fused_full_1"),
            ("fused_full_10_1", "fused_full_10"),
            ("fused_full_and_one_3_1", "fused_full_and_one"),
            ("log_likelihood_full_1_one_f32", "log_likelihood"),
            ("update", "update"),
            ("update_wide", "update"),
            ("e_step_full_f32", "e_step"),
        ] {
            assert_eq!(family(kernel), want);
        }
    }

    const MODULE: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n\
        .extern .shared .align 16 .b8 dynamic_shared[];\n\
        .global .align 8 .b8 _RNvNtNtCs5F1of8gU43Z_11gmm_kernels4math6powers6POWERS[2] = {0, 1};\n\
        .visible .entry reduce_b(\n)\n{\n\tmov.b64 \t%rd1, dynamic_shared;\n\tbra \t$L__BB0_2;\n$L__BB0_2:\n\tret;\n}\n\
        .visible .entry update(\n)\n{\n\
        \tmov.b64 \t%rd1, _RNvNtNtCs5F1of8gU43Z_11gmm_kernels4math6powers6POWERS;\n$L__BB17_3:\n\tret;\n}\n\
        .visible .entry reduce_a(\n)\n{\n\tret;\n}\n";

    fn signatures(of: &[(&'static str, bool)]) -> Vec<Signature> {
        let one = |&(name, tensor_cores)| Signature { name, tensor_cores, warpgroups: false, parameters: &[] };
        of.iter().map(one).collect()
    }

    const ALL: [(&str, bool); 3] = [("reduce_b", false), ("update", true), ("reduce_a", false)];

    #[test]
    fn each_family_is_a_module_with_what_its_kernels_refer_to() {
        let all = split(MODULE, &signatures(&ALL)).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["sm_75/reduce.ptx", "sm_80/update.ptx"]);
        let [reduce, update] =
            ["sm_75/reduce.ptx", "sm_80/update.ptx"].map(|path| all[path].split_once('\n').unwrap().1);
        assert_eq!(
            reduce,
            ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 dynamic_shared[];\n\
             .visible .entry reduce_a(\n)\n{\n\tret;\n}\n\
             .visible .entry reduce_b(\n)\n{\n\tmov.b64 \t%rd1, dynamic_shared;\n\tbra \t$L__BB0_2;\n$L__BB0_2:\n\tret;\n}\n"
        );
        assert_eq!(
            update,
            ".version 8.0\n.target sm_90a\n.address_size 64\n\
             .global .align 8 .b8 _RNvNtNtC11gmm_kernels4math6powers6POWERS[2] = {0, 1};\n\
             .visible .entry update(\n)\n{\n\
             \tmov.b64 \t%rd1, _RNvNtNtC11gmm_kernels4math6powers6POWERS;\n$L__BB0_3:\n\tret;\n}\n"
        );
        let (declared, kernels) = parts(&all["sm_75/reduce.ptx"]);
        assert_eq!(declared, [".extern .shared .align 16 .b8 dynamic_shared[];"].into());
        assert!(kernels.starts_with(".visible .entry reduce_a(") && kernels.ends_with("ret;\n}\n"));
    }

    #[test]
    fn a_kernel_s_text_does_not_depend_on_other_kernels() {
        let first = MODULE.find(".visible .entry reduce_b").unwrap();
        let second = MODULE.find(".visible .entry update").unwrap();
        let without =
            [&MODULE[..first], &MODULE[second..].replace("BB17_", "BB0_").replace("5F1of8gU43Z", "1")].concat();
        let update = |module: &str, of| split(module, &signatures(of)).unwrap()["sm_80/update.ptx"].clone();
        assert_eq!(update(&without, &ALL[1..]), update(MODULE, &ALL));
    }

    #[test]
    fn a_kernel_that_is_not_in_both_lists_fails() {
        let text = |of| split(MODULE, &signatures(of)).unwrap_err().to_string();
        assert!(text(&ALL[1..]).contains("reduce_b"));
        assert!(text(&[ALL[0], ALL[1], ALL[2], ("other", true)]).contains("other"));
    }

    #[test]
    fn what_is_no_kernel_after_a_kernel_fails() {
        let declared = format!("{MODULE}.global .b8 late[1];\n");
        assert!(split(&declared, &signatures(&ALL)).unwrap_err().to_string().contains("reduce_a"));
        assert!(split(&MODULE.replace("dynamic_shared[]", "dynamic_shared"), &signatures(&ALL)).is_err());
    }
}
