//! Splits a module into one file per family of kernels, so that a change to a kernel changes only the file of its
//! family.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

/// Families by prefixes of kernel names. The longest matching prefix decides; a kernel without a match belongs to the
/// family of the first word of its name. `fused_full` is divided into several families, because a file should have less
/// than 4 MB.
const FAMILIES: [(&str, &str); 37] = [
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

/// The directives and declarations of a family's file, without comments, and its kernels by name.
pub(super) fn parts(file: &str) -> Result<(String, BTreeMap<&str, String>)> {
    let head = file.split(ENTRY).next().unwrap_or_default();
    let lines = head.lines().filter(|line| !line.starts_with("//")).map(|line| format!("{line}\n"));
    Ok((lines.collect(), kernels(file)?))
}

/// Splits the module of a target into one module per family, by name of the family. Each has the declarations that its
/// kernels use.
///
/// If `base`, the module of an older target, is given, kernels that are identical in it are omitted: devices load them
/// from there.
pub(super) fn split(module: &str, base: Option<&str>) -> Result<BTreeMap<String, String>> {
    let head = module.split(ENTRY).next().unwrap_or_default();
    let (directives, declarations): (Vec<&str>, Vec<&str>) = head
        .lines()
        .partition(|line| [".version", ".target", ".address_size"].iter().any(|directive| line.starts_with(directive)));
    let of_base = base.map(kernels).transpose()?.unwrap_or_default();
    let mut families: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for (name, text) in kernels(module)? {
        if of_base.get(name).is_none_or(|older| newer_spelling(older) != newer_spelling(&text)) {
            families.entry(family(name)).or_default().push((name, text));
        }
    }
    families
        .into_iter()
        .map(|(family, kernels)| {
            let mut text =
                format!("// Kernels of gmm-kernels: {family}. Made by `cargo xtask build-ptx`; do not edit.\n");
            directives.iter().for_each(|line| text.extend([line, "\n"]));
            for declaration in &declarations {
                let declaration = renumbered(declaration);
                let symbol = symbol(&declaration)?;
                if kernels.iter().any(|(_, kernel)| kernel.contains(symbol)) {
                    text.extend([&declaration, "\n"]);
                }
            }
            kernels.iter().for_each(|(_, kernel)| text.push_str(kernel));
            Ok((family.to_owned(), text))
        })
        .collect()
}

/// The text of a kernel in the syntax for `sm_90` and later, for which the compiler extracts the upper half of a number
/// with another instruction. Only for comparisons.
fn newer_spelling(kernel: &str) -> String {
    kernel.replace("{ .reg .b32 tmp; mov.b64 {tmp, ", "mov.b64 \t{_, ").replace("; }\n", ";\n")
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

    #[test]
    fn each_family_is_a_module_with_what_its_kernels_refer_to() {
        let all = split(MODULE, None).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["reduce", "update"]);
        let [reduce, update] = ["reduce", "update"].map(|family| all[family].split_once('\n').unwrap().1);
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
    }

    #[test]
    fn a_kernel_s_text_does_not_depend_on_other_kernels() {
        let first = MODULE.find(".visible .entry reduce_b").unwrap();
        let second = MODULE.find(".visible .entry update").unwrap();
        let without =
            [&MODULE[..first], &MODULE[second..].replace("BB17_", "BB0_").replace("5F1of8gU43Z", "1")].concat();
        assert_eq!(split(&without, None).unwrap()["update"], split(MODULE, None).unwrap()["update"]);
    }

    #[test]
    fn kernels_that_are_the_same_for_an_older_target_are_left_out() {
        let half = |line: &str| MODULE.replace("bra \t$L__BB0_2;", line);
        let newer = half("mov.b64 \t{_, %r1}, %rd2;");
        let older = half("{ .reg .b32 tmp; mov.b64 {tmp, %r1}, %rd2; }").replace("sm_90a", "sm_80");
        assert!(split(&newer, Some(&older)).unwrap().is_empty());
        // Of its family, only the kernel that differs is kept.
        let all = split(&newer, Some(MODULE)).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["reduce"]);
        assert!(all["reduce"].contains("reduce_b") && !all["reduce"].contains("reduce_a"));
    }

    #[test]
    fn what_is_no_kernel_after_a_kernel_fails() {
        let declared = format!("{MODULE}.global .b8 late[1];\n");
        assert!(split(&declared, None).unwrap_err().to_string().contains("reduce_a"));
        assert!(split(&MODULE.replace("dynamic_shared[]", "dynamic_shared"), None).is_err());
    }
}
