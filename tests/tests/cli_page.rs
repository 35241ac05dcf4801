//! The page of `gmm serve` and the page of `gmm report` in a browser. With `GMM_PAGE_LOOK=FOLDER` their pictures are saved
//! there for inspection.

use gmm_tests::browser::Browser;
use gmm_tests::{Folder, data};
use serde_json::json;

use crate::cli_serve::Server;

/// A folder with a model of four columns, and a server of it and of its rows.
pub(crate) fn served() -> (Folder, Server) {
    let folder = Folder::new();
    let x = data("iris.csv");
    folder.gmm(&format!("fit {x} -k 3 -o iris.json -q")).ok();
    folder.gmm(&format!("outliers iris.json {x} --contamination 0.02 --save iris.json -o y.csv")).ok();
    let server = Server::start(&folder, &format!("iris.json --matrix rows={x} --listen 127.0.0.1:0"));
    (folder, server)
}

/// An expression that is the text of all elements of a selector.
fn text(selector: &str) -> String {
    format!("[...document.querySelectorAll({})].map(e => e.textContent)", json!(selector))
}

const IS_DRAWN: &str = "document.querySelectorAll('#drawing ellipse').length === 6";

#[test]
fn the_page_scores_a_row_and_shows_its_conditional_densities() {
    let Some(mut browser) = Browser::start() else { return };
    let (_folder, server) = served();
    let own = format!("http://{}/", server.address);
    browser.open(&own, (1100, 900), "light");
    browser.wait_for(IS_DRAWN);
    assert_eq!(browser.value("document.querySelectorAll('#components tbody tr').length"), 3);
    // A row is entered and sent as a user does.
    let row = [5.0, 3.5, 1.4, 2.5];
    browser.value(&format!(
        "(() => {{ const row = {}; document.querySelectorAll('#score .fields input').forEach((e, j) => e.value = row[j]); \
         document.querySelector('#score form button').click(); }})()",
        json!(row)
    ));
    browser.wait_for("document.querySelectorAll('#result .densities svg').length === 4");
    let (status, answer) = server.ask("POST", "/score", &json!({"row": row, "conditionals": true}).to_string());
    assert_eq!(status, 200, "{answer}");
    let answer = &answer["rows"][0];
    let shown = browser.value(&text("#result dd"));
    assert_eq!(shown[0], answer["label"].to_string());
    let density: f64 = shown[1].as_str().unwrap().parse().unwrap();
    assert!((density - answer["log_density"].as_f64().unwrap()).abs() < 1e-3 * density.abs(), "{shown}");
    assert_eq!(shown[2], "yes", "an outlier");
    // The petal is too wide for its length: the density of that column given the others tells.
    let columns = browser.value(&text("#result figcaption"));
    assert!(columns[3].as_str().unwrap().contains("petal_width: 2.5; expected"), "{columns}");
    assert!(columns[3].as_str().unwrap().ends_with("unusual"), "{columns}");
    browser.check_names();
    browser.look("page-light");
    // A missing value is expected, not given.
    browser.value(
        "(() => { document.querySelector('#score .fields input').value = ''; \
         document.querySelector('#score form button').click(); })()",
    );
    browser.wait_for("document.querySelector('#result figcaption').textContent.startsWith('sepal_length: expected')");
    // A wrong value is named, and the page goes on.
    browser.value(
        "(() => { document.querySelector('#score .fields input').value = 'x'; \
         document.querySelector('#score form button').click(); })()",
    );
    browser.wait_for("document.querySelector('#problem').textContent === 'sepal_length is not a number: x'");
    // The rows are searched.
    browser.value(
        "(() => { document.querySelector('#search input[name=row]').value = '1 0 0 0'; \
         document.querySelector('#search form button').click(); })()",
    );
    browser.wait_for("document.querySelectorAll('#found tbody tr').length === 5");
    browser.wait_for("/rows\\/s/.test(document.querySelector('#rate').textContent)");
    browser.check_events(&own);
}

#[test]
fn columns_are_chosen_by_dragging_by_keys_and_in_the_lists() {
    let Some(mut browser) = Browser::start() else { return };
    let (_folder, server) = served();
    let own = format!("http://{}/", server.address);
    browser.open(&own, (1100, 900), "light");
    browser.wait_for(IS_DRAWN);
    let axes = |browser: &mut Browser| {
        browser.value("[+document.querySelector('#x').value, +document.querySelector('#y').value]")
    };
    assert_eq!(axes(&mut browser), json!([0, 1]));
    let chip = |j: usize| format!(".chips button[data-column='{j}']");
    browser.drag(&chip(2), "#drawing", (0.6, 0.95));
    assert_eq!(axes(&mut browser), json!([2, 1]));
    browser.drag(&chip(3), "#drawing", (0.02, 0.3));
    assert_eq!(axes(&mut browser), json!([2, 3]));
    assert_eq!(
        browser.value("document.querySelector('#drawn').textContent"),
        "3 components in petal_length and petal_width"
    );
    // Outside the picture nothing is chosen; a column of the other axis changes places with it.
    browser.drag(&chip(0), "h1", (0.5, 0.5));
    assert_eq!(axes(&mut browser), json!([2, 3]));
    browser.drag(&chip(3), "#drawing", (0.6, 0.95));
    assert_eq!(axes(&mut browser), json!([3, 2]));
    assert_eq!(browser.value("document.querySelector('#drawing').dataset.drop === undefined"), true);
    // The same by keys, from the field before the buttons.
    browser.value("document.querySelector('#y').focus()");
    browser.press("Tab");
    assert_eq!(browser.value("document.activeElement.dataset.column"), "0");
    browser.press("x");
    assert_eq!(axes(&mut browser), json!([0, 2]));
    browser.press("Tab");
    browser.press("Y");
    assert_eq!(axes(&mut browser), json!([0, 1]));
    assert_eq!(browser.value(&format!("{}.length", text(".chips button[aria-pressed=true]"))), 2);
    browser.value(
        "(() => { const y = document.querySelector('#y'); y.value = 3; y.dispatchEvent(new Event('change')); })()",
    );
    assert_eq!(
        browser.value("document.querySelector('#drawn').textContent"),
        "3 components in sepal_length and petal_width"
    );
    browser.check_events(&own);
}

#[test]
fn the_page_is_legible_in_the_dark_and_on_a_narrow_screen() {
    let Some(mut browser) = Browser::start() else { return };
    let (_folder, server) = served();
    let own = format!("http://{}/", server.address);
    let mut backgrounds = Vec::new();
    for (scheme, width) in [("light", 1100), ("dark", 1100), ("dark", 360)] {
        browser.open(&own, (width, 900), scheme);
        browser.wait_for(IS_DRAWN);
        browser.value("document.querySelector('#score form button').click()");
        browser.wait_for("document.querySelectorAll('#result .densities svg').length === 4");
        // 4.5 is what WCAG 2 asks of text.
        for selector in ["body", ".soft", "dt", "label"] {
            let contrast = browser.contrast(selector);
            assert!(contrast >= 4.5, "{scheme}: the contrast of {selector} is {contrast}");
        }
        backgrounds.push(browser.value("getComputedStyle(document.body).backgroundColor"));
        browser.check_width();
        browser.look(&format!("page-{scheme}-{width}"));
    }
    assert_ne!(backgrounds[0], backgrounds[1]);
    browser.check_events(&own);
}

#[test]
fn a_report_is_legible_in_a_browser() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = Folder::new();
    let x = data("iris.csv");
    folder.gmm(&format!("fit {x} -k 3 -o iris.json -q")).ok();
    folder.gmm(&format!("report iris.json {x} -o report.html")).ok();
    let own = format!("file://{}", folder.path("report.html").display());
    for (scheme, width) in [("light", 1100), ("dark", 1100), ("dark", 360)] {
        browser.open(&own, (width, 900), scheme);
        for selector in ["body", "dt", "figcaption", "caption"] {
            let contrast = browser.contrast(selector);
            assert!(contrast >= 4.5, "{scheme}: the contrast of {selector} is {contrast}");
        }
        browser.check_width();
        browser.look(&format!("report-{scheme}-{width}"));
    }
    browser.check_names();
    browser.check_events(&own);
}
