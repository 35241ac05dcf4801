//! One file for each family of kernels: a change of a kernel changes the file of its family alone.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

/// Families by the names of their kernels. The longest prefix counts; a kernel with none of these is of the family of its
/// name's first word. `pass_full` and `scores` are several: a file should have less than 4 MB.
const FAMILIES: [(&str, &str); 35] = [
    ("add_centre_", "seeding"),
    ("densities_", "chunked"),
    ("draw_", "seeding"),
    ("e_step_", "e_step"),
    ("finish_", "products"),
    ("forms_", "products"),
    ("lower_", "seeding"),
    ("mix_", "mixing"),
    ("moments_", "chunked"),
    ("multiply_", "products"),
    ("nearest_", "seeding"),
    ("norms_", "chunked"),
    ("pack_", "products"),
    ("pass_full_1_", "pass_full_1"),
    ("pass_full_2_", "pass_full_2"),
    ("pass_full_3_", "pass_full_3"),
    ("pass_full_4_", "pass_full_4"),
    ("pass_full_5_", "pass_full_5"),
    ("pass_full_6_", "pass_full_6"),
    ("pass_full_7_", "pass_full_7"),
    ("pass_full_8_", "pass_full_8"),
    ("pass_full_9_", "pass_full_9"),
    ("pass_full_10_", "pass_full_10"),
    ("pass_full_and_one_", "pass_full_and_one"),
    ("pass_linear_", "pass_linear"),
    ("pass_squares_", "pass_squares"),
    ("pick_", "tile"),
    ("potentials_", "seeding"),
    ("scores_alone_", "scores_alone"),
    ("scores_slices_", "scores_slices"),
    ("select_", "products"),
    ("split_", "products"),
    ("sums_", "m_step_sums"),
    ("tile_", "tile"),
    ("untile_", "tile"),
];

/// The family of a kernel, which is the name of its file.
fn family(kernel: &str) -> &str {
    let listed = FAMILIES.iter().filter(|(prefix, _)| kernel.starts_with(prefix));
    let longest = listed.max_by_key(|(prefix, _)| prefix.len()).map(|(_, family)| *family);
    longest.unwrap_or_else(|| kernel.split('_').next().unwrap_or(kernel))
}

/// What begins a kernel, after the line before it.
const ENTRY: &str = "\n.visible .entry ";

/// What ends one.
const END: &str = "\n}\n";

/// A module's kernels by their names.
///
/// What the compiler counts within the module, it counts within the kernel here, so that a kernel's text does not depend on
/// what other kernels there are.
fn kernels(module: &str) -> Result<BTreeMap<&str, String>> {
    let kernel = |part| {
        let name = str::split(part, '(').next().unwrap_or_default();
        let text = [&ENTRY[1..], part.trim_end(), "\n"].concat();
        if !text.find(END).is_some_and(|end| end + END.len() == text.len()) {
            bail!("{name}: the PTX has more than kernels after its first kernel");
        }
        Ok((name, renumbered(&text)))
    };
    module.split(ENTRY).skip(1).map(kernel).collect()
}

/// A target's module as a text for each family, by the family's name. Each is a module by itself, with the declarations that
/// its kernels refer to.
///
/// Where `base` is given, the module of an older target, kernels are left out that are the same in it: devices take them from
/// there.
pub(super) fn split(module: &str, base: Option<&str>) -> Result<BTreeMap<String, String>> {
    let head = module.split(ENTRY).next().unwrap_or_default();
    let (directives, declarations): (Vec<&str>, Vec<&str>) = head
        .lines()
        .partition(|line| [".version", ".target", ".address_size"].iter().any(|directive| line.starts_with(directive)));
    let of_base = base.map(kernels).transpose()?.unwrap_or_default();
    let mut families: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for (name, text) in kernels(module)? {
        if !of_base.get(name).is_some_and(|older| newer_spelling(older) == newer_spelling(&text)) {
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

/// A kernel's text as for targets from `sm_90` on, for which the compiler writes the upper half of a number in another way. Only
/// for comparisons.
fn newer_spelling(kernel: &str) -> String {
    kernel.replace("{ .reg .b32 tmp; mov.b64 {tmp, ", "mov.b64 \t{_, ").replace("; }\n", ";\n")
}

/// The name that a declaration of an array gives: `.extern .shared .align 16 .b8 dynamic_shared[];`.
fn symbol(declaration: &str) -> Result<&str> {
    let name = declaration.split_once('[').and_then(|(before, _)| before.split_whitespace().last());
    name.with_context(|| format!("the PTX declares what is no array: '{declaration}'"))
}

/// What a name begins with that the compiler numbers in the order of a module's kernels: labels, and the stack frame.
const NUMBERED: [&str; 2] = ["$L__BB", "__local_depot"];

/// What follows the checksum of the crate and its features in the name of a constant, `_RNvNtCs5F1of8gU43Z_11gmm_kernels4math5TABLE`.
const CRATE: &str = "_11gmm_kernels";

/// A kernel's text, or a declaration, without numbers and checksums of the module that it was part of.
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
        // By the rules of these names a crate without a checksum is as good.
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
            ("pass_full_1_13", "pass_full_1"),
            ("pass_full_10_1", "pass_full_10"),
            ("pass_full_and_one_3_1", "pass_full_and_one"),
            ("scores_full_1_one_f32", "scores"),
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
        // One that differs stays, and no other of its family.
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
