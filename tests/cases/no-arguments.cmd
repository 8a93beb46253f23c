# Without arguments the help goes to stderr, as for any wrong call.
# exit 2
$LOPSIDE
